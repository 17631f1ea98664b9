import { randomBytes } from "node:crypto";
import { open, rename, rm, stat } from "node:fs/promises";
import { AppError } from "@forkd/contract/wire";
import { wireOf, type Forkd, type PackedArchive } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage, wholeNumber } from "../options/arguments.ts";
import { examples } from "../options/help.ts";
import type { Progress } from "../terminal/progress.ts";
import { formatBytes } from "../terminal/table.ts";
import { TransferRate } from "../terminal/transfer.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag>", "Tag of a snapshot")
    .option("-o, --output <file>", "Write to this file, or - for stdout (default: TAG.forkd.tar)")
    .option("--level <n>", "Level of zstd, 1 (fast) to 19 (small) (default: 7)", wholeNumber(1, 19))
    .option("-f, --force", "Replace the file if it exists")
    .addHelpText(
      "after",
      "\nThe file has the snapshot and everything that it needs. The same snapshot gives the same bytes.\n" +
        examples(
          "forkd pack python-numpy",
          "forkd pack python-numpy -o - | ssh other forkd unpack -",
          "forkd pack python-numpy -o numpy.tar --level 19 --json | jq -r .digest",
        ),
    )
    .action(toAction(pack));
}

type Options = { output?: string; level?: number; force?: true };

async function pack(cli: Cli, options: Options, tag: string): Promise<void> {
  const { level, output = `${tag}.forkd.tar` } = options;
  const isStandard = output === "-";
  if (isStandard && cli.out.isTerminal)
    throw usage("An archive is not text. Redirect stdout, or name a file with -o");
  if (!isStandard && !options.force) await refuseExisting(output);
  const forkd = await cli.daemon();
  using progress = cli.progress(`Packing ${tag}`);
  const packed = await prepare(cli, forkd, { tag, level, progress });
  const rate = new TransferRate();
  const chunks = forkd.snapshots.archive(tag, { level, signal: cli.signal });
  const counted = count(chunks, packed.archiveBytes, (done) =>
    progress.sample(`${tag}: writing ${rate.words(done, packed.archiveBytes)}`),
  );
  if (isStandard) for await (const chunk of counted) await cli.out.bytes(chunk);
  else await writeWhole(output, counted);
  progress[Symbol.dispose]();
  if (isStandard) return note(cli, packed, "stdout");
  if (cli.out.json) return cli.out.document(Object.assign({}, wireOf(packed), { file: output }));
  cli.out.line(output);
  note(cli, packed, output);
}

function note(cli: Cli, { tag, archiveBytes, fileBytes, snapshots }: PackedArchive, place: string): void {
  const parents = snapshots > 1 ? ` with ${snapshots - 1} of its parents` : "";
  cli.out.note(
    `Packed ${tag}${parents}: ${formatBytes(fileBytes)} of files in ${formatBytes(archiveBytes)}, to ${place}.`,
  );
}

async function prepare(
  cli: Cli,
  forkd: Forkd,
  { tag, level, progress }: { tag: string; level: number | undefined; progress: Progress },
): Promise<PackedArchive> {
  const rate = new TransferRate();
  return forkd.snapshots.pack(tag, {
    level,
    signal: cli.signal,
    onProgress: ({ phase, done, total }) =>
      progress.sample(
        phase === "verify"
          ? `${tag}: comparing its files with their digests`
          : `${tag}: packing ${rate.words(done, total)}`,
      ),
  });
}

async function refuseExisting(path: string): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found) throw usage(`"${path}" exists. Name another file with -o, or replace it with --force`);
}

/** Passes chunks on. Throws if they are not as many bytes as was announced. */
async function* count(
  chunks: AsyncIterable<Uint8Array>,
  expected: number,
  onBytes: (done: number) => void,
): AsyncGenerator<Uint8Array> {
  let done = 0;
  for await (const chunk of chunks) {
    done += chunk.length;
    onBytes(done);
    yield chunk;
  }
  if (done !== expected) {
    throw new AppError("daemon_unreachable", `The archive was cut: ${done} of ${expected} bytes arrived`, {
      details: { cut: true },
    });
  }
}

/** The file has its name when it is complete. */
async function writeWhole(path: string, chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const temporary = `${path}.${randomBytes(4).toString("hex")}.part`;
  const file = await open(temporary, "wx");
  try {
    try {
      for await (const chunk of chunks) await file.writeFile(chunk);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}
