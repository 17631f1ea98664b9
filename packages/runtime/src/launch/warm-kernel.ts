/** A warm interpreter of a sandbox: its connection, and what is needed to start it again. */
import type { Language } from "@forkd/contract";
import { KernelClient, type AgentClient } from "@forkd/machine";
import type { Manifest } from "@forkd/store";

type KernelRecord = Manifest["kernels"][number];

export type WarmKernel = {
  language: Language;
  /** text of its ready message */
  version: string;
  argv: readonly string[];
  client: KernelClient;
};

export async function startKernel(
  agent: AgentClient,
  spec: { language: Language; argv: readonly string[]; env: Readonly<Record<string, string>> },
): Promise<WarmKernel> {
  const client = await KernelClient.start(agent, spec);
  return { language: spec.language, argv: spec.argv, version: (await client.ready).slice(0, 256), client };
}

/** Sends the attach without waiting for a reply; messages may follow it directly. */
export function attachKernel(agent: AgentClient, record: KernelRecord): WarmKernel {
  const client = KernelClient.attach(agent, {
    processId: record.process_id,
    offsets: record.offsets,
    nextEvalId: record.next_id,
    unanswered: record.unanswered,
  });
  return { language: record.language, version: record.version, argv: record.argv, client };
}

/** The position of the kernel in its streams, for a manifest. */
export function recordKernel({ language, version, argv, client }: WarmKernel): KernelRecord {
  const { processId, offsets, nextEvalId, unanswered } = client.position();
  return {
    language,
    version,
    argv: [...argv],
    process_id: processId,
    offsets: [...offsets],
    next_id: nextEvalId,
    unanswered: [...unanswered],
  };
}
