/**
 * Copies many small files into the guest as one archive, which `tar` in the guest unpacks: a call for each
 * file would take many times as long.
 */
import { readFile } from "node:fs/promises";
import { AppError } from "@forkd/contract/wire";
import type { CommandHandle } from "@forkd/sdk";
import { clean } from "../terminal/table.ts";
import { unreadable } from "../terminal/unreadable.ts";
import { archiveEnd, archiveEntry } from "./archive.ts";
import { addFile, type CopyRun } from "./copy-report.ts";

/** Exit code of a shell that did not find the program. */
const noProgram = 127;
const killed = 137;
const pieceBytes = 512 * 1024;

type SmallFile = { readonly from: string; readonly to: string; readonly mode: number };

/** False if the guest has no shell or no `tar`: then nothing is copied. The directories exist already. */
export async function copyByArchive(
  run: CopyRun,
  files: readonly SmallFile[],
  total: number,
): Promise<boolean> {
  const command = await startTar(run);
  if (command === undefined) return false;
  const ended = command.wait();
  // It is awaited below, after the input.
  ended.catch(() => undefined);
  const sent: number[] = [];
  let failure: unknown;
  try {
    await send(run, command, files, (bytes) => {
      sent.push(bytes);
      run.progress.sample(`Copying: ${sent.length} of ${total} files`);
    });
  } catch (error) {
    failure = error;
    // Does nothing if it has exited.
    await command.kill().catch(() => undefined);
  }
  const { exitCode: code, stderr } = await ended;
  if (code === noProgram) return false;
  // Killed here; any other code is what tar itself found wrong.
  if (failure !== undefined && (code === 0 || code === killed)) throw failure;
  if (code !== 0) {
    const said = clean(stderr.trim().split("\n").at(-1) ?? "");
    throw new AppError("guest_refused", `Cannot unpack in the guest: tar exited with ${code}: ${said}`, {
      details: { exit_code: code, stderr },
    });
  }
  for (const bytes of sent) {
    run.report.bytes += bytes;
    addFile(run, total);
  }
  return true;
}

async function startTar({ sandbox, signal }: CopyRun): Promise<CommandHandle | undefined> {
  try {
    const args = ["sh", "-c", "command -v tar >/dev/null || exit 127; tar -xpf - -C / && sync"];
    return await sandbox.commands.start(args, { stdinOpen: true, signal });
  } catch (error) {
    if (error instanceof AppError && error.code === "guest_refused") return undefined;
    throw error;
  }
}

async function send(
  { signal }: CopyRun,
  command: CommandHandle,
  files: readonly SmallFile[],
  onFile: (bytes: number) => void,
): Promise<void> {
  let piece: Uint8Array[] = [];
  let length = 0;
  const flush = async () => {
    await command.write(Buffer.concat(piece));
    piece = [];
    length = 0;
  };
  for (const { from, to, mode } of files) {
    signal.throwIfAborted();
    const content = await readFile(from).catch((cause: unknown) => {
      throw unreadable(from, cause);
    });
    const entry = archiveEntry({ path: to.slice(1), mode, content });
    piece.push(entry);
    length += entry.length;
    onFile(content.length);
    if (length >= pieceBytes) await flush();
  }
  piece.push(archiveEnd);
  await flush();
  await command.closeStdin();
}
