/** One daemon after another on the same directories. */
import type { TestContext } from "node:test";
import { nullLogger } from "@forkd/base";
import { ImageRefs } from "../src/snapshots/image-refs.ts";
import { createRuntime, openStore } from "../src/open-runtime.ts";
import { cleanUpStrays } from "../src/recovery/strays.ts";
import { adoptSandboxes } from "../src/recovery/adopt.ts";
import { Survivors } from "../src/recovery/survivors.ts";
import { tscKhz, type TestRuntime } from "./support.ts";

/** The daemon is killed; its machines keep running. */
export async function killDaemon({ runtime }: TestRuntime): Promise<void> {
  for (const sandbox of runtime.registry.all()) {
    runtime.registry.forget(sandbox.id);
    await sandbox.release();
  }
}

/** Starts the next daemon on the same directories, where the machines of the engine keep running. */
export async function follow(t: TestContext, before: TestRuntime): Promise<TestRuntime> {
  await killDaemon(before);
  const { config, engine } = before;
  const survivors = await Survivors.find(config, (_config, _id, { pid }) =>
    engine.machines.some((machine) => machine.process.pid === pid && !machine.hasEnded),
  );
  await cleanUpStrays(config, nullLogger(), (id) => survivors.claim(id));
  const images = new ImageRefs();
  const store = await openStore(config, images, nullLogger(), survivors.mapped);
  const accelerator = { accelerator: "tcg", reason: "a test" } as const;
  const runtime = createRuntime({ config, log: nullLogger(), engine, store, accelerator, tscKhz, images });
  t.after(() => runtime[Symbol.asyncDispose]());
  await adoptSandboxes(runtime, survivors);
  return { runtime, engine, config };
}
