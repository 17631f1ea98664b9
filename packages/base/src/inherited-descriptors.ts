/** Descriptors that a parent process, such as a shell, left open by accident. */
import { closeSync, readdirSync, readFileSync } from "node:fs";

const closeOnExec = 0o2000000;

/**
 * Closes every descriptor above stderr that programs started from here would inherit, so that no VMM holds
 * a pipe or a file of the shell that started the daemon. Node sets close-on-exec on all its own descriptors
 * and on low ones that it inherits. Call it at the start of a process. Returns the closed descriptors.
 */
export function closeInheritedDescriptors(): number[] {
  const closed: number[] = [];
  for (const name of readdirSync("/proc/self/fd")) {
    const fd = Number(name);
    if (fd <= 2 || !isInherited(fd)) continue;
    closeSync(fd);
    closed.push(fd);
  }
  return closed;
}

function isInherited(fd: number): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
    return flags !== undefined && (Number.parseInt(flags, 8) & closeOnExec) === 0;
  } catch {
    return false; // the descriptor that listed the directory
  }
}
