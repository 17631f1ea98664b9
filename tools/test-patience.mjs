/**
 * Loaded into every test file (node --import). If no test starts or ends for a long time, it names the test
 * that hangs, stops the processes that the file started, and fails the file. The timeout of node:test applies
 * to whole files and does not name the test.
 */
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { afterEach, beforeEach } from "node:test";

/** Longer than any test takes on a very slow host. */
const patienceSecs = Number(process.env.FORKD_TEST_PATIENCE_SECS ?? 1200);
const farewellMs = 30_000;
/** The real timers, because a test may mock them. */
const { setTimeout, clearTimeout } = globalThis;

const running = new Set();
let timer;

function childrenOfThis() {
  const text = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8").trim();
  return text === "" ? [] : text.split(" ").map(Number);
}

async function giveUp() {
  const what = running.size === 0 ? "before, between or after the tests" : [...running].join("; ");
  process.stderr.write(
    `No test has ended for ${patienceSecs} s, so this test file stops. It hangs in: ${what}\n`,
  );
  // A daemon that gets SIGTERM stops its machines.
  for (const pid of childrenOfThis()) process.kill(pid, "SIGTERM");
  for (const late = Date.now() + farewellMs; Date.now() < late && childrenOfThis().length > 0;)
    await wait(100);
  process.exit(1);
}

function rearm() {
  clearTimeout(timer);
  timer = setTimeout(giveUp, patienceSecs * 1000).unref();
}

// Not in the process that starts the test files.
if (process.env.NODE_TEST_CONTEXT !== undefined) {
  rearm();
  beforeEach((context) => {
    running.add(context.name);
    rearm();
  });
  afterEach((context) => {
    running.delete(context.name);
    rearm();
  });
}
