/** All tools, in the order in which clients see them. */
import { branchSandbox, rewindSandbox } from "./branches.ts";
import { evalCodeTool } from "./code.ts";
import { execCommand, listCommands, signalCommand } from "./commands.ts";
import { diffFiles } from "./diff.ts";
import { listFiles, readFileTool, writeFileTool } from "./files.ts";
import { readOutput } from "./outputs.ts";
import {
  getSandbox,
  killSandbox,
  listSandboxes,
  pauseSandbox,
  pingSandbox,
  resumeSandbox,
  spawnSandboxes,
} from "./sandboxes.ts";
import { createSnapshot, deleteSnapshot, getSnapshot, listSnapshots } from "./snapshots.ts";
import type { Tool } from "./tool.ts";
import { waitForOutput, waitForText } from "./wait.ts";

export const tools: readonly Tool[] = [
  listSnapshots,
  getSnapshot,
  createSnapshot,
  deleteSnapshot,
  spawnSandboxes,
  listSandboxes,
  getSandbox,
  pingSandbox,
  killSandbox,
  execCommand,
  waitForOutput,
  listCommands,
  signalCommand,
  evalCodeTool,
  readFileTool,
  writeFileTool,
  listFiles,
  waitForText,
  diffFiles,
  branchSandbox,
  rewindSandbox,
  pauseSandbox,
  resumeSandbox,
  readOutput,
];
