/** Secrets that guests never hold: placeholders, the proxy, the gateway, and branches with fewer of them. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { fetchIn } from "../support/guest-net.ts";
import { openOutside, type Outside } from "../support/outside/outside.ts";
import { sh } from "../support/sandboxes.ts";

const isRoot = process.getuid?.() === 0;
const skip = isRoot ? false : "needs root: it makes a network namespace with servers";
const value = "sk-live-0123456789abcdef-very-secret";

let outside: Outside;
let daemon: TestDaemon;
before(async () => {
  if (!isRoot) return;
  outside = await openOutside(["api.example.test", "example.test"]);
  daemon = await startDaemon({
    snapshots: ["python"],
    env: { FORKD_NETWORK_RESOLVER: outside.resolver, NODE_EXTRA_CA_CERTS: outside.caPath },
  });
});
after(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await outside?.[Symbol.asyncDispose]();
});

/** Files below a directory whose content has the text. */
function filesWith(dir: string, text: string): string[] {
  return readdirSync(dir, { recursive: true, encoding: "utf8" }).filter((name) => {
    const path = join(dir, name);
    const facts = statSync(path, { throwIfNoEntry: false });
    return facts?.isFile() && facts.size < 64 << 20 && readFileSync(path).includes(text);
  });
}

test(
  "a secret reaches its host and never the guest, its files, the log or the answers",
  { skip },
  async () => {
    const { forkd } = daemon;
    const secret = await forkd.secrets.set("API_KEY", { value, hosts: ["api.example.test"] });
    assert.equal(JSON.stringify(secret).includes(value), false);
    const rules = ["allow api.example.test:443", "allow example.test:80", "allow example.test:443"];
    const sandbox = await forkd.create("python", { network: { rules }, secrets: ["API_KEY"] });
    const placeholder = await sh(sandbox, "echo $API_KEY");
    assert.match(placeholder, /^forkd-secret-[0-9a-f]{32}$/);
    assert.deepEqual(sandbox.info.secrets, ["API_KEY"]);
    const bearer = { Authorization: `Bearer ${placeholder}` };
    // The certificate is one of ours, which the guest trusts since it was baked.
    assert.equal((await fetchIn(sandbox, "https://api.example.test/v1/models", bearer)).status, 200);
    const [seen] = await outside.seen();
    assert.equal(seen?.headers["authorization"], `Bearer ${value}`);
    // The gateway needs no certificate of ours.
    assert.equal((await fetchIn(sandbox, "http://secrets.internal/API_KEY/v1/chat")).status, 200);
    const last = (await outside.seen()).at(-1);
    assert.deepEqual([last?.url, last?.headers["authorization"]], ["/v1/chat", `Bearer ${value}`]);
    // A host that repeats it in its answer does not hand it to the guest.
    const echoed = await fetchIn(sandbox, "https://api.example.test/echo-authorization", bearer);
    assert.equal(echoed.body.includes(value), false);
    // Another host gets neither the value nor the placeholder.
    const wrong = await fetchIn(sandbox, "http://example.test/", bearer);
    assert.equal(wrong.status, 403);
    assert.equal(
      (await outside.seen()).some(({ url, headers }) => url === "/" && headers["authorization"]),
      false,
    );
    const inGuest = await sh(
      sandbox,
      `grep -rl ${value} /root /tmp /run /etc /proc/*/environ 2>/dev/null | head -3; true`,
    );
    assert.equal(inGuest, "");
    const answers = [
      sandbox.info,
      await sandbox.network.info(),
      await forkd.secrets.list(),
      await forkd.sandboxes.list().all(),
    ];
    assert.equal(JSON.stringify(answers).includes(value), false);
    for await (const entry of sandbox.network.log())
      assert.equal(JSON.stringify(entry).includes(value), false);
    assert.equal(daemon.log().includes(value), false);
    assert.deepEqual(filesWith(daemon.dataDir, value), []);
    const { mode } = statSync(join(daemon.dataDir, "secrets.json"));
    assert.equal(mode & 0o077, 0);
  },
);

test(
  "a branch can be given fewer secrets than its source, and a removed secret is gone at once",
  { skip },
  async () => {
    const { forkd } = daemon;
    await forkd.secrets.set("FIRST", {
      value: "first-value-1234567890",
      hosts: ["api.example.test"],
      header: "X-First",
    });
    await forkd.secrets.set("SECOND", {
      value: "second-value-1234567890",
      hosts: ["api.example.test"],
      header: "X-Second",
    });
    const network = { rules: ["allow api.example.test:443"] };
    const source = await forkd.create("python", { network, secrets: ["FIRST", "SECOND"] });
    const ask = async (sandbox: typeof source) => {
      await outside.forget();
      const first = await sh(source, "echo $FIRST");
      const second = await sh(source, "echo $SECOND");
      const { status } = await fetchIn(sandbox, "https://api.example.test/", {
        "X-First": first,
        "X-Second": second,
      });
      const [seen] = await outside.seen();
      return { status, first: seen?.headers["x-first"], second: seen?.headers["x-second"] };
    };
    assert.deepEqual(await ask(source), {
      status: 200,
      first: "first-value-1234567890",
      second: "second-value-1234567890",
    });
    const { children } = await source.branch({ n: 1, secrets: ["FIRST"] });
    const [child] = children;
    if (!child || child instanceof Error) throw child ?? new Error("no child");
    assert.deepEqual(child.info.secrets, ["FIRST"]);
    // The placeholder that it still has in memory stands for nothing any more.
    assert.deepEqual((await ask(child)).status, 403);
    await outside.forget();
    const only = await fetchIn(child, "https://api.example.test/", {
      "X-First": await sh(source, "echo $FIRST"),
    });
    assert.equal(only.status, 200);
    assert.equal((await outside.seen())[0]?.headers["x-first"], "first-value-1234567890");
    await forkd.secrets.remove("FIRST");
    await outside.forget();
    await fetchIn(child, "https://api.example.test/", { "X-First": "x" });
    const after = await outside.seen();
    assert.equal(
      after.some(({ headers }) => String(headers["x-first"]).includes("first-value")),
      false,
    );
    await rejectsWith(forkd.create("python", { secrets: ["FIRST"] }), "secret_not_found");
  },
);
