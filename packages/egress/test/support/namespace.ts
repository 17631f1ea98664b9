import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { TestContext } from "node:test";
import { nativeTool } from "@forkd/base";
import { until } from "@forkd/test-support";
import type { ProcessId } from "../../src/types.ts";

/** A process in a network namespace of the kind that a VMM has. It is killed after the test, and the namespace with it. */
export async function namespace(t: TestContext): Promise<ProcessId> {
  const variant = process.getuid?.() === 0 ? ["root", "--uids", "200000:1000"] : ["user"];
  const binds = ["/usr", "/lib", "/lib64"].flatMap((path) => ["--read", path]);
  const child = spawn(
    nativeTool("forkd-launch"),
    ["--variant", ...variant, "--net", "slirp", ...binds, "--", "/usr/bin/sleep", "600"],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
  t.after(() => child.kill("SIGKILL"));
  const pid = child.pid ?? 0;
  await until("the namespace is ready", () => {
    if (child.exitCode !== null) throw new Error(`forkd-launch failed: ${child.exitCode}`);
    return statOf(pid).name === "sleep";
  });
  return { pid, startTime: statOf(pid).startTime };
}

function statOf(pid: number): { name: string; startTime: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const end = stat.lastIndexOf(")");
  return {
    name: stat.slice(stat.indexOf("(") + 1, end),
    startTime: Number(stat.slice(end + 2).split(" ")[19]),
  };
}
