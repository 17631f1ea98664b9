/** The signatures of one repository, through the client of registries. */
import { AppError } from "@forkd/contract";
import type { Repository } from "@forkd/registry";
import type { SignatureWriter } from "./attach-signature.ts";

export function signaturesOf(repository: Repository, signal: AbortSignal): SignatureWriter {
  return {
    readManifest: async (tag) => {
      try {
        return (await repository.manifest(tag, signal)).bytes;
      } catch (error) {
        if (error instanceof AppError && error.code === "artifact_not_found") return undefined;
        throw error;
      }
    },
    readBlob: async (blob) => {
      const pieces: Uint8Array[] = [];
      for await (const piece of repository.readBlob(blob, { signal })) pieces.push(piece);
      return Buffer.concat(pieces);
    },
    writeBlob: async ({ digest, bytes }) => {
      const open = async function* () {
        yield bytes;
      };
      await repository.uploadBlob({ digest, size: bytes.length, open }, { signal });
    },
    writeManifest: async (tag, { bytes, mediaType }) => {
      await repository.putManifest(bytes, mediaType, { tag, signal });
    },
  };
}
