import assert from "node:assert/strict";
import { test } from "node:test";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

type Trust = { policy: string; outcome: string; text: string };

/** What the CLI says about a pull with this outcome. */
async function saysOf(reference: string, trust: Trust, ...options: string[]): Promise<string> {
  const pull = {
    reference,
    digest: `sha256:${"0".repeat(64)}`,
    snapshots: [{ tag: "x", existed: false }],
    moved_bytes: 1,
    duration_ms: 1,
    trust,
    rebuilt: false,
    snapshot: { tag: "x", bootable: true },
  };
  await using daemon = await openFakeDaemon({
    "POST /v1/hub/pull": { lines: [{ type: "pulled", pull }] },
  });
  const { code, stdout, stderr } = await runCli(["pull", reference, ...options], { socket: daemon.socket });
  assert.deepEqual([code, stdout], [0, "x\n"], stderr);
  return stderr;
}

test("pull warns about what no pinned key has signed, also with --quiet", async () => {
  const unsigned = { policy: "warn", outcome: "unsigned", text: "ghcr.io/x has no signature" };
  const warning = /^Warning: ghcr\.io\/x has no signature\. Run `forkd trust pin` to require one\.$/m;
  assert.match(await saysOf("ghcr.io/x", unsigned), warning);
  assert.match(await saysOf("ghcr.io/x", unsigned, "--quiet"), warning);
  // An archive cannot be signed.
  assert.match(await saysOf("https://ghcr.io/x", unsigned), /^Warning: ghcr\.io\/x has no signature\.$/m);
});

test("pull does not warn about a good signature, or if none is asked for", async () => {
  const signed = { policy: "require", outcome: "signed", text: "ghcr.io/x is signed by sha256:00" };
  const says = await saysOf("ghcr.io/x", signed);
  assert.match(says, /^ghcr\.io\/x is signed by sha256:00\.$/m);
  assert.doesNotMatch(says, /Warning/);
  const off = { policy: "off", outcome: "unchecked", text: "Signatures are not checked" };
  assert.doesNotMatch(await saysOf("ghcr.io/x", off), /Warning|Signatures/);
});
