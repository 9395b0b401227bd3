// The page starts here: key, language, routes, shell.

import { loadedFor, onKeyNeeded, takeKey } from './api.js';
import { startLanguage, t } from './i18n.js';
import { startLive } from './live.js';
import { route } from './router.js';
import { leave } from './state.js';
import { askForKey, usesLink } from './parts/keydialog.js';
import { toast } from './parts/toast.js';
import { startShell } from './shell.js';

const VIEWS = {
  '/': () => import('./views/home.js'),
  '/search': () => import('./views/search.js'),
  '/memory/{path}': () => import('./views/memory.js'),
  '/edit/{path}': () => import('./views/edit.js'),
  '/new': () => import('./views/new.js'),
  '/summary': () => import('./views/summary.js'),
  '/calendar': () => import('./views/calendar.js'),
  '/graph': () => import('./views/graph.js'),
  '/history': () => import('./views/history.js'),
  '/commit/{id}': () => import('./views/commit.js'),
  '/heat': () => import('./views/heat.js'),
  '/sessions': () => import('./views/sessions.js'),
  '/session/{id}': () => import('./views/sessions.js'),
  '/queue': () => import('./views/queue.js'),
  '/archive': () => import('./views/archive.js'),
  '/health': () => import('./views/health.js'),
  '/settings': () => import('./views/settings.js'),
  '/transfer': () => import('./views/transfer.js'),
};

const language = startLanguage();
await takeKey(async () => { await language; return usesLink(); });
await language;
onKeyNeeded(askForKey, leave);
for (const [pattern, load] of Object.entries(VIEWS)) route(pattern, load);
await startShell();
const other = loadedFor();
if (other !== null) toast(t('key.other', { user: other }), { detail: t('key.other.text') });
startLive();
// Every view is here before it is wanted: a browser that failed to load a module does not try again until the page is reloaded.
(window.requestIdleCallback ?? setTimeout)(() => Object.values(VIEWS).forEach((load) => load().catch(() => {})));
