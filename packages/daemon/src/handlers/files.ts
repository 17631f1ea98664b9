import {
  chmodFile,
  listFiles,
  makeDirectory,
  moveFile,
  readFile,
  removeFile,
  statFile,
  writeFile,
} from "@forkd/runtime";
import type { Handlers } from "../http/router.ts";
import type { Daemon } from "./all.ts";

export function fileHandlers({ runtime }: Daemon) {
  return {
    readFile: (input, context) => readFile(runtime, input, context),
    writeFile: (input, { content, ...context }) => writeFile(runtime, { ...input, content }, context),
    listFiles: (input, context) => listFiles(runtime, input, context),
    statFile: (input, context) => statFile(runtime, input, context),
    makeDirectory: async (input, context) => {
      await makeDirectory(runtime, input, context);
    },
    moveFile: async (input, context) => {
      await moveFile(runtime, input, context);
    },
    removeFile: async (input, context) => {
      await removeFile(runtime, input, context);
    },
    chmodFile: async (input, context) => {
      await chmodFile(runtime, input, context);
    },
  } satisfies Partial<Handlers>;
}
