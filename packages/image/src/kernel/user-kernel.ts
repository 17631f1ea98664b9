/** Kernels that a user provides, with modules or with all required drivers built in. */
import { constants, copyFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { z } from "zod";
import { ensureEntry, requireSpace } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import { builderVersion, digestOf, sha256File } from "../files/digest.ts";
import { identify, kindNames } from "../files/file-kind.ts";
import type { Kernel } from "./kernel.ts";
import { copyModules } from "./copy-modules.ts";
import { wantedModules } from "./modules.ts";
import { digestTree } from "../files/tree-digest.ts";
import { readHead, requireUnchanged, unusable } from "../files/user-file.ts";

const infoSchema = z.object({ digest: z.string(), version: z.string(), source: z.string() });

/** The kernel's code is linked above this address; programs of user space are not. */
const kernelAddresses = 0xffff_ffff_8000_0000n;

/**
 * A copy of the kernel in the cache. Throws `invalid_image` unless it is a bzImage or an ELF vmlinux for
 * x86-64. `modulesDir` is the directory `/lib/modules/<release>` of a machine that runs this kernel.
 */
export async function importKernel(
  imageDir: string,
  path: string,
  options: { modulesDir?: string | undefined } = {},
  context: BuildContext = {},
): Promise<Kernel> {
  const { modulesDir } = options;
  const source = resolve(path);
  const info = await stat(source).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR", "EACCES")) throw error;
    throw unusable(source, "no such file, or it cannot be read", error);
  });
  if (!info.isFile()) throw unusable(source, "it is not a file");
  const version = kernelVersion(source, await readHead(source));
  const digest = await sha256File(source, context.signal);
  const modules = modulesDir === undefined ? "" : (await digestTree(modulesDir, context.signal)).digest;
  const entry = await ensureEntry({
    parent: join(imageDir, "kernel"),
    digest: digestOf({ builderVersion, wantedModules, kernel: digest, modules }),
    info: infoSchema,
    signal: context.signal,
    lease: context.lease,
    build: async (directory) => {
      await requireSpace(directory, info.size);
      await copyFile(source, join(directory, "vmlinuz"), constants.COPYFILE_FICLONE);
      await requireUnchanged(source, info);
      if (modulesDir !== undefined) await copyModules(modulesDir, join(directory, "modules"), context.signal);
      return { digest, version, source };
    },
  });
  return {
    path: join(entry.directory, "vmlinuz"),
    digest,
    version: entry.version,
    modulesDir: modulesDir === undefined ? null : join(entry.directory, "modules"),
  };
}

/** The release of a kernel, "" if the file does not contain it. */
function kernelVersion(source: string, head: Uint8Array): string {
  const kind = identify(head);
  if (kind === "bzimage") return bzImageVersion(head);
  if (kind === "elf" && isVmlinux(head)) return "";
  const found = kind === "elf" ? "an ELF program, not a kernel for x86-64" : kindNames[kind];
  throw new AppError("invalid_image", `Cannot use "${source}": it looks like ${found}`, {
    remedy: advice("Use a bzImage or an ELF vmlinux."),
  });
}

/** The first word of the text that the boot header points to (offset 0x20e, counted from 0x200). */
function bzImageVersion(head: Uint8Array): string {
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  const at = view.getUint16(0x20e, true) + 0x200;
  const text = Buffer.from(head.subarray(at, at + 128)).toString("latin1");
  return at === 0x200 ? "" : (/^[\w.+~-]+/.exec(text)?.[0] ?? "");
}

/** A 64-bit ELF file for x86-64 with a segment at kernel addresses. */
function isVmlinux(head: Uint8Array): boolean {
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  if (head.length < 64 || view.getUint8(4) !== 2 || view.getUint16(18, true) !== 62) return false;
  const table = Number(view.getBigUint64(0x20, true));
  const size = view.getUint16(0x36, true);
  const count = view.getUint16(0x38, true);
  for (let index = 0; index < count; index++) {
    const at = table + index * size;
    if (at + 32 > head.length) return false;
    if (view.getUint32(at, true) === 1 && view.getBigUint64(at + 16, true) >= kernelAddresses) return true;
  }
  return false;
}
