/** The host's wall clock is set while sandboxes with a time to live run. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isSandbox } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { context, forkableRuntime, forkRequest, until } from "../support.ts";

const dayMs = 86_400_000;

for (const [what, jumpMs] of [
  ["back", -dayMs],
  ["ahead", dayMs],
] as const) {
  test(`a clock that is set a day ${what} ends nothing early and lets nothing live on`, async (t) => {
    const { runtime } = await forkableRuntime(t);
    const started = performance.now();
    const [short] = await fork(runtime, forkRequest({ ttl_secs: 1 }), context);
    const [long] = await fork(runtime, forkRequest({ ttl_secs: 3600 }), context);
    assert.ok(short && isSandbox(short) && long && isSandbox(long));
    const now = Date.now.bind(Date);
    t.mock.method(Date, "now", () => now() + jumpMs);
    await until("its time is over", () => runtime.registry.find(short.id) === undefined);
    assert.ok(performance.now() - started > 900, "it died early");
    t.mock.restoreAll();
    await until("only the other is there", () => runtime.registry.find(long.id)?.state === "running");
  });
}
