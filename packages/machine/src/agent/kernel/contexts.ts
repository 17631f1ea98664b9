/** The contexts of a kernel: the answer to `C` (docs/spec/kernel-protocol.md). Pure. */
import { contextNamePattern } from "@forkd/contract";
import { kernelBounds } from "../bounds.ts";
import { KernelGarbage } from "./garbage.ts";

export interface KernelContext {
  readonly name: string;
  /** absent in the answer of a kernel of protocol 2 */
  readonly cwd?: string;
}

/**
 * The contexts in the answer to `C`, each a name, from protocol 3 on with its working directory, each followed
 * by NUL; undefined if there are too many. Stops at the first name that is not one, so that the cost does not
 * follow the size of the answer.
 */
export function decodeContexts(bytes: Buffer, protocol: number): KernelContext[] | undefined {
  const contexts: KernelContext[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = endOfText(bytes, at);
    const name = bytes.toString("latin1", at, Math.min(end, at + 65));
    if (!contextNamePattern.test(name)) throw new KernelGarbage("name that no context can have");
    if (contexts.length >= kernelBounds.contexts) return undefined;
    const cwdEnd = protocol < 3 ? end : endOfText(bytes, end + 1);
    if (cwdEnd - end > kernelBounds.cwdBytes) throw new KernelGarbage("directory that no context can have");
    contexts.push(protocol < 3 ? { name } : { name, cwd: bytes.toString("utf8", end + 1, cwdEnd) });
    at = cwdEnd + 1;
  }
  return contexts;
}

function endOfText(bytes: Buffer, at: number): number {
  const end = bytes.indexOf(0, at);
  if (end < 0) throw new KernelGarbage("names without an end");
  return end;
}
