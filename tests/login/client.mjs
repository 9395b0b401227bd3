// Logs in with the TypeScript SDK: node client.mjs SDK URL. Says where its user has to go, is told where they came back,
// then stores and finds a memory: AUTHORIZE url < callback url < memory, query > JSON.
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [sdk, url] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(join(sdk, 'dist/esm/client', file)));
const { Client } = await load('index.js');
const { StreamableHTTPClientTransport } = await load('streamableHttp.js');
const { UnauthorizedError } = await load('auth.js');
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => (await lines.next()).value;

class Login {
  get redirectUrl() { return 'http://127.0.0.1:7/callback'; }

  get clientMetadata() {
    return {
      client_name: 'TypeScript', redirect_uris: [this.redirectUrl], application_type: 'native',
      grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'none',
    };
  }

  clientInformation() { return this.client; }

  saveClientInformation(client) { this.client = client; }

  tokens() { return this.kept; }

  saveTokens(kept) { this.kept = kept; }

  codeVerifier() { return this.verifier; }

  saveCodeVerifier(verifier) { this.verifier = verifier; }

  redirectToAuthorization(where) { console.log(where.href); }
}

const login = new Login();
const connect = async () => {
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: login });
  const client = new Client({ name: 'check', version: '1' });
  try {
    await client.connect(transport);
    return client;
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(new URL(await read()).searchParams.get('code'));
    return null;
  }
};
let client = await connect() ?? await connect();
await client.callTool({ name: 'commit_memory', arguments: { memory_content: await read() } });
// Without its access token the client has to use what it was given to get the next one.
const before = login.kept;
login.kept = { ...before, access_token: 'gone' };
const found = await client.callTool({ name: 'find', arguments: { query: await read() } });
console.log(JSON.stringify({ total: found.structuredContent.total, text: found.content[0].text,
  refreshed: login.kept.refresh_token !== before.refresh_token, scope: login.kept.scope }));
await client.close();
process.exit(0);
