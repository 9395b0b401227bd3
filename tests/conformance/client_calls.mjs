// Calls tools with the TypeScript SDK: node client_calls.mjs SDK CALLS ANSWERS PROGRAM ARGUMENT…
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [sdk, calls, answers, command, ...args] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(join(sdk, 'dist/esm/client', file)));
const { Client } = await load('index.js');
const { StdioClientTransport } = await load('stdio.js');
const client = new Client({ name: 'check', version: '1' });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'ignore' }));
const found = [];
for (const call of JSON.parse(readFileSync(calls, 'utf8'))) {
  const answer = await client.callTool({ name: call.tool, arguments: call.arguments });
  found.push({ error: Boolean(answer.isError), given: answer.structuredContent });
}
await client.close();
writeFileSync(answers, JSON.stringify(found));
