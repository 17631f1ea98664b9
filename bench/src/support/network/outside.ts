/** The outside world: a network namespace with servers at an address that is reserved for documentation. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { runProgram, Scope } from "@forkd/base";
import { command, deadline, limits, stop } from "../deadline.ts";
import { serverPorts } from "./protocol.ts";

export type Outside = AsyncDisposable & {
  readonly address: string;
  /** for the setting network_resolver */
  readonly resolver: string;
  /** of the servers */
  readonly pid: number;
};

const serverPath = fileURLToPath(new URL("./outside-server.js", import.meta.url));

/** Only root can. */
export async function openOutside(): Promise<Outside> {
  await using scope = new Scope();
  const { address, namespace } = await makeNamespace(scope);
  const child = spawn("ip", ["netns", "exec", namespace, process.execPath, serverPath, address], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  scope.defer(() => stop("the servers outside", child, { signal: "SIGKILL", secs: limits.command }));
  await deadline("the servers outside", limits.command, once(child, "message"));
  const kept = scope.keep();
  return {
    address,
    resolver: `${address}:${serverPorts.dns}`,
    pid: child.pid ?? 0,
    [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose](),
  };
}

async function makeNamespace(scope: Scope): Promise<{ address: string; namespace: string }> {
  // Benchmarks may run at the same time, each with its own four addresses.
  const first = 4 * (process.pid % 60);
  const [near, far] = [`fkn${process.pid}`, `fkf${process.pid}`];
  const [hostAddress, address] = [`198.51.100.${first + 1}`, `198.51.100.${first + 2}`];
  const namespace = `forkd-bench-${process.pid}`;
  const ip = (...args: string[]) => command("ip", args);
  // Also after an interrupt, which ends every other command.
  const remove = async (...args: string[]) =>
    void (await runProgram("ip", args, { timeoutMs: limits.command * 1000 }).catch(() => undefined));
  await ip("netns", "add", namespace);
  scope.defer(() => remove("netns", "delete", namespace));
  await ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace);
  scope.defer(() => remove("link", "delete", near));
  await ip("address", "add", `${hostAddress}/30`, "dev", near);
  await ip("link", "set", near, "up");
  await ip("-n", namespace, "address", "add", `${address}/30`, "dev", far);
  await ip("-n", namespace, "link", "set", far, "up");
  return { address, namespace };
}
