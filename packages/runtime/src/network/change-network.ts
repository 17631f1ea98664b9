/** Gives a sandbox another network while it exists. */
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxNetwork } from "./sandbox-network.ts";

/** Applies it to the machine, then records it. If that fails, the sandbox has the network that it had. */
export async function changeNetwork(sandbox: Sandbox, network: SandboxNetwork): Promise<void> {
  const { machineAtWork: machine, facts } = sandbox;
  await machine?.applyNetwork(network, facts.limits);
  try {
    await sandbox.persist({ network });
  } catch (error) {
    await machine?.applyNetwork(sandbox.network, facts.limits);
    throw error;
  }
  sandbox.network = network;
}
