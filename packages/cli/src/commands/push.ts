import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage, wholeNumber } from "../options/arguments.ts";
import { examples } from "../options/help.ts";
import type { Signer } from "../signing/key-store.ts";
import { formatBytes } from "../terminal/table.ts";
import { TransferLine } from "../hub/transfer-line.ts";

type Options = { level?: number; plainHttp?: true; sign?: true; key?: string; passphraseFile?: string };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag>", "Snapshot")
    .argument("<reference>", "HOST/REPOSITORY[:TAG], or a URL that accepts PUT")
    .option("--level <level>", "Compress with this level (default: 7)", wholeNumber(1, 19))
    .option("--plain-http", "Connect without TLS")
    .option("--sign", "Sign it with your key")
    .option("--key <key>", 'Sign with this key: a name or a file (default: "default")')
    .option("--passphrase-file <file>", "Read the passphrase of the key from this file")
    .addHelpText(
      "after",
      "\nThe snapshot is sent with the chain that it needs. What the registry has is not sent again.\n" +
        examples(
          "forkd push python-numpy ghcr.io/team/python-numpy:v1",
          "forkd push python-numpy ghcr.io/team/python-numpy:v1 --sign --key release",
          "forkd push work 'https://bucket.example.com/work.tar?signature=…'",
        ),
    )
    .action(toAction(push));
}

async function push(cli: Cli, options: Options, tag: string, reference: string): Promise<void> {
  const { authFor } = await import("../hub/registry-access.ts");
  // Before anything is sent: a key that cannot be used must not leave an unsigned snapshot behind.
  const signer = await signerFor(cli, options, reference);
  const forkd = await cli.daemon();
  const auth = await authFor(forkd, reference, cli.signal);
  using progress = cli.progress(`Pushing ${tag}`);
  const line = new TransferLine();
  const pushed = await forkd.hub.push(tag, reference, {
    auth,
    plainHttp: options.plainHttp,
    level: options.level,
    signal: cli.signal,
    onProgress: (event) => {
      if (cli.out.json && !cli.out.quiet) void cli.out.event(wireOf(event));
      const text = line.text(event);
      if (progress.isLive) progress.update(text);
      else progress.sample(text);
    },
  });
  const { digest } = pushed;
  if (signer && digest !== undefined) {
    const repository = pushed.reference.replace(/:[^/:]*$/, "");
    const made = { signature: signer.sign(repository, digest), publicKey: signer.publicKey };
    const access = { auth, plainHttp: options.plainHttp, signal: cli.signal };
    await forkd.hub.sign(repository, digest, { ...made, ...access });
  }
  progress[Symbol.dispose]();
  if (cli.out.json) {
    const signed = signer && { signed_by: signer.fingerprint };
    return cli.out.event({ type: "pushed", push: { ...wireOf<object>(pushed), ...signed } });
  }
  cli.out.line(pushed.digest === undefined ? pushed.reference : `${pushed.reference}@${pushed.digest}`);
  const { totalBytes, movedBytes, durationMs } = pushed;
  cli.out.note(
    `Pushed ${tag} in ${(durationMs / 1000).toFixed(1)} s: sent ${formatBytes(movedBytes)} of ${formatBytes(totalBytes)}.`,
  );
  if (signer) cli.out.note(`Signed by ${signer.fingerprint}.`);
}

async function signerFor(cli: Cli, options: Options, reference: string): Promise<Signer | undefined> {
  const { sign, key, passphraseFile: file } = options;
  if (!sign && (key !== undefined || file !== undefined))
    throw usage("--key and --passphrase-file need --sign");
  if (!sign) return undefined;
  if (reference.includes("://")) throw usage("--sign is for registries; an archive cannot have a signature");
  const { keyDirectory, openSigner } = await import("../signing/key-store.ts");
  const askPassphrase = async () => {
    const { readSecret } = await import("../terminal/secret-input.ts");
    const prompt = `Passphrase of ${key ?? "default"} (not shown): `;
    return readSecret({ file, prompt, interrupts: cli.interrupts });
  };
  return openSigner({ directory: keyDirectory(cli.environment), key: key ?? "default", askPassphrase });
}
