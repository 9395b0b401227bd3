// An OpenID provider of npm: node issuer.mjs PACKAGE PORT RESOURCE. Anybody who gives a name is that user.
import { generateKeyPairSync } from 'node:crypto';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, port, resource] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(join(folder, 'lib/index.js')));
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const kid = `key-${Date.now()}`;
const scope = 'memory:read memory:write';
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid, use: 'sig' }] },
  cookies: { keys: ['of a test'] },
  scopes: ['openid', 'offline_access', 'memory:read', 'memory:write'],
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  issueRefreshToken: (ctx, client) => client.grantTypeAllowed('refresh_token'),
  clientBasedCORS: () => false,
  clients: [{
    client_id: 'page', redirect_uris: [new URL('/login/callback', resource).href], token_endpoint_auth_method: 'none',
    application_type: 'native', response_types: ['code'], grant_types: ['authorization_code'],
  }],
  features: {
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, audience) => ({ scope, audience, accessTokenFormat: 'jwt', accessTokenTTL: 600 }),
    },
  },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
