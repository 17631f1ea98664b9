import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { wireOf, type UnpackedArchive } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage } from "../options/arguments.ts";
import { examples } from "../options/help.ts";
import { TransferRate } from "../terminal/transfer.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<file>", "File that pack wrote, or - for stdin")
    .option("--tag <tag>", "Tag of the snapshot (default: as it was packed)")
    .option("-f, --force", "Replace another snapshot that has the tag")
    .addHelpText(
      "after",
      "\nAn archive has no signature, and `forkd trust` does not apply to it: its author decides what runs in the\n" +
        "guest. Unpack only files from people whom you trust with the host.\n" +
        "\nParents in the file keep their tags. One whose tag another snapshot has gets a tag with its id.\n" +
        examples(
          "forkd unpack python-numpy.forkd.tar",
          "forkd unpack numpy.tar --tag numpy-2",
          "ssh other forkd pack python-numpy -o - | forkd unpack -",
        ),
    )
    .action(toAction(unpack));
}

type Options = { tag?: string; force?: true };

/** Reads of the file. */
const chunkBytes = 1 << 20;

async function unpack(cli: Cli, { tag, force }: Options, path: string): Promise<void> {
  const isStandard = path === "-";
  const total = isStandard ? undefined : await lengthOf(path);
  const forkd = await cli.daemon();
  using progress = cli.progress(`Unpacking ${isStandard ? "stdin" : path}`);
  const rate = new TransferRate();
  const input = isStandard ? process.stdin : createReadStream(path, { highWaterMark: chunkBytes });
  const unpacked = await forkd.snapshots.unpack(
    counted(input, (done) =>
      progress.sample(
        done === total
          ? `${path}: comparing files with their digests`
          : `${path}: ${rate.words(done, total)}`,
      ),
    ),
    { tag, force, signal: cli.signal },
  );
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.document(wireOf(unpacked));
  show(cli, unpacked);
}

function show(cli: Cli, { snapshot, chain }: UnpackedArchive): void {
  cli.out.line(snapshot.tag);
  for (const { tag, insteadOf } of chain) {
    if (insteadOf !== undefined)
      cli.out.note(`Another snapshot has the tag "${insteadOf}": its parent is "${tag}".`);
  }
  const made = chain.filter(({ existed }) => !existed).map(({ tag }) => tag);
  const parents = made.filter((tag) => tag !== snapshot.tag);
  if (made.length === 0) cli.out.note(`${snapshot.tag} was here already.`);
  else
    cli.out.note(
      `Unpacked ${snapshot.tag}${parents.length > 0 ? ` with its parents ${parents.join(", ")}` : ""}.`,
    );
  if (snapshot.warning !== undefined) cli.out.note(`This host cannot fork it: ${snapshot.warning}.`);
}

async function lengthOf(path: string): Promise<number> {
  const found = await stat(path).catch((error: unknown) => {
    throw usage(`Cannot read "${path}": ${error instanceof Error ? error.message : String(error)}`);
  });
  if (!found.isFile()) throw usage(`"${path}" is not a file`);
  return found.size;
}

async function* counted(
  source: AsyncIterable<Uint8Array | string>,
  onBytes: (done: number) => void,
): AsyncGenerator<Uint8Array> {
  let done = 0;
  for await (const chunk of source) {
    const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
    done += bytes.length;
    onBytes(done);
    yield bytes;
  }
}
