import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract/wire";
import { wireOf } from "../src/convert/answer.ts";
import { Forkd } from "../src/forkd.ts";
import { remedyText } from "../src/remedies.ts";
import { readBody, startServer, type TestServer } from "./support.ts";

const id = "sb-aa0000000000000000000001";
const info = { id, snapshot_tag: "py", state: "running" };
const network = { mode: "filtered", device: "tap", rules: [], ceilings: [], secrets: [], counters: {} };
const entry = { at_unix: 1, event: "denied", protocol: "tcp", name: "a.example", port: 443 };
const secret = { name: "API_KEY", hosts: ["a.example"], placeholder: "forkd-secret-0" };

type Daemon = TestServer & { readonly asked: string[]; readonly forkd: Forkd };

/** Answers every request with what fits its path. */
async function openDaemon(): Promise<Daemon> {
  const asked: string[] = [];
  const server = await startServer((incoming, outgoing) => {
    void readBody(incoming).then((body) => {
      const { method, url = "" } = incoming;
      asked.push(`${method} ${url} ${body}`.trim());
      const answer = /\/log/.test(url)
        ? `${JSON.stringify(entry)}\n`
        : method === "DELETE"
          ? ""
          : JSON.stringify(answerOf(url, method === "GET"));
      outgoing.writeHead(200).end(answer);
    });
  });
  return { ...server, asked, forkd: new Forkd({ transport: server.transports.unix }) };
}

function answerOf(url: string, isRead: boolean): unknown {
  if (url.endsWith("/network")) return network;
  if (url.startsWith("/v1/secrets")) return isRead ? [secret] : secret;
  if (url.includes("/presets")) return isRead ? [{ name: "pypi" }] : { name: "pypi" };
  if (url.endsWith("/branch")) return { tag: "b", children: [] };
  if (url === "/v1/sandboxes") return [info];
  return url.startsWith("/v1/sandboxes/") ? info : { name: "x" };
}

test("sandbox.network sends what was asked for and returns the network", async () => {
  await using daemon = await openDaemon();
  const sandbox = await daemon.forkd.sandboxes.get(id);
  daemon.asked.length = 0;
  assert.deepEqual(await sandbox.network.info(), network);
  await sandbox.network.allow(["a.example:443", "preset:pypi"]);
  await sandbox.network.deny("10.0.0.0/8");
  await sandbox.network.remove("allow a.example:443");
  await sandbox.network.set({ mode: "none" });
  await sandbox.network.set({ rules: ["allow *"], secrets: [] });
  const path = `/v1/sandboxes/${id}/network`;
  assert.deepEqual(daemon.asked, [
    `GET ${path}`,
    `POST ${path} {"add":["allow a.example:443","allow preset:pypi"]}`,
    `POST ${path} {"add":["deny 10.0.0.0/8"]}`,
    `POST ${path} {"remove":["allow a.example:443"]}`,
    `POST ${path} {"mode":"none"}`,
    `POST ${path} {"rules":["allow *"],"secrets":[]}`,
  ]);
});

test("sandbox.network.log() yields entries and passes follow and tail", async () => {
  await using daemon = await openDaemon();
  const sandbox = await daemon.forkd.sandboxes.get(id);
  const entries = [];
  for await (const each of sandbox.network.log({ follow: true, tail: 3 })) entries.push(each);
  assert.deepEqual(wireOf(entries), [entry]);
  assert.equal(daemon.asked.at(-1), `GET /v1/sandboxes/${id}/network/log?follow=true&tail=3`);
});

test("fork(), branch(), workspaces.create() and keys.create() send network and secrets", async () => {
  await using daemon = await openDaemon();
  const { forkd, asked } = daemon;
  const options = { network: { mode: "open", rules: ["deny a.example"] }, secrets: ["API_KEY"] } as const;
  const body = '"network":{"mode":"open","rules":["deny a.example"]},"secrets":["API_KEY"]}';
  const sandbox = await forkd.create("py", options);
  assert.ok(asked.at(-1)?.endsWith(body), asked.at(-1));
  await sandbox.branch({ n: 1, ...options });
  assert.ok(asked.at(-1)?.endsWith(body), asked.at(-1));
  await forkd.workspaces.create("dev", "py", options);
  assert.ok(asked.at(-1)?.endsWith(body), asked.at(-1));
  await forkd.keys.create("ci", options);
  assert.ok(asked.at(-1)?.endsWith(body), asked.at(-1));
  await forkd.create("py", { network: { rules: [] } });
  assert.ok(asked.at(-1)?.endsWith('"network":{"rules":[]}}'), asked.at(-1));
});

test("forkd.secrets and forkd.network.presets list, set and remove", async () => {
  await using daemon = await openDaemon();
  const { forkd, asked } = daemon;
  assert.deepEqual(await forkd.secrets.list(), [secret]);
  assert.deepEqual(await forkd.secrets.set("API_KEY", { value: "v", hosts: ["a.example"] }), secret);
  await forkd.secrets.remove("API_KEY");
  assert.deepEqual(await forkd.network.presets.list(), [{ name: "pypi" }]);
  await forkd.network.presets.set("pypi", ["allow pypi.org:443"]);
  await forkd.network.presets.remove("pypi");
  assert.deepEqual(asked, [
    "GET /v1/secrets",
    'POST /v1/secrets {"name":"API_KEY","value":"v","hosts":["a.example"]}',
    "DELETE /v1/secrets/API_KEY",
    "GET /v1/network/presets",
    'POST /v1/network/presets {"name":"pypi","rules":["allow pypi.org:443"]}',
    "DELETE /v1/network/presets/pypi",
  ]);
});

test("remedyText() names the calls about secrets", () => {
  const error = new AppError("secret_not_found", "No", {
    remedy: { action: "list_secrets", name: "API_KEY" },
  });
  assert.match(remedyText(error) ?? "", /forkd\.secrets\.list\(\).*forkd\.secrets\.set\("API_KEY"/);
});
