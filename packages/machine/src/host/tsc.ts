/** Measures the host's TSC frequency with the guest agent's binary in its host mode. */
import { runProgram } from "@forkd/base";
import { AppError } from "@forkd/contract";

const measureMs = 30_000;

export async function measureTscKhz(agentPath: string): Promise<number> {
  const { stdout } = await runProgram(agentPath, ["--tsc-khz"], { timeoutMs: measureMs });
  const khz = Number(stdout.trim());
  if (!Number.isInteger(khz) || khz < 100_000 || khz > 20_000_000) {
    throw new AppError("host_not_ready", `Cannot measure the TSC frequency: got "${stdout.trim()}"`);
  }
  return khz;
}
