/**
 * What a tool is, and how it is registered: checked arguments, progress, sized results, errors as results. What
 * only a call needs is imported by the call, because clients wait for the list of tools.
 */
import type {
  CallToolResult,
  ContentBlock,
  McpServer,
  ServerContext,
  StandardSchemaWithJSON,
  ToolAnnotations,
} from "@modelcontextprotocol/server";
import { AppError } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import type { Backend } from "../backend.ts";
import { Progress } from "../progress.ts";
import type { ObjectSchema, Schema } from "../schema.ts";

/** The calls into guests. */
export type Guest = typeof import("../guest.ts");

/** One call of a tool. */
export type Call = {
  readonly backend: Backend;
  readonly forkd: Forkd;
  readonly guest: Guest;
  /** Aborts when the client cancels the call or is gone. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
};

export type Answer = {
  /** The result as data; it matches the output schema. */
  readonly structured: Readonly<Record<string, unknown>>;
  /** What a model reads; default: `structured` as JSON. */
  readonly content?: readonly ContentBlock[] | undefined;
  /** Links and images after the content. */
  readonly more?: readonly ContentBlock[] | undefined;
};

export type Tool = {
  readonly name: string;
  readonly register: (server: McpServer, backend: Backend) => void;
};

// The fields of an object do not matter where only its JSON Schema is used.
type AnyObject = ObjectSchema<Readonly<Record<string, Schema<unknown>>>>;

type Definition<Input extends AnyObject> = {
  readonly title: string;
  readonly description: string;
  readonly input: Input;
  readonly output: AnyObject;
  readonly annotations: Required<Omit<ToolAnnotations, "title">>;
  /** False: the tool does not need the daemon, so it works without one. */
  readonly needsDaemon?: false;
  readonly run: (input: Input["type"], call: Call) => Promise<Answer>;
};

export function tool<Input extends AnyObject>(name: string, definition: Definition<Input>): Tool {
  const { title, description, input, output, annotations, run } = definition;
  const [inputSchema, outputSchema] = [shown(input), shown(output)];
  const config = { title, description, inputSchema, outputSchema, annotations };
  const call = async (given: unknown, context: ServerContext, backend: Backend): Promise<CallToolResult> => {
    using progress = new Progress(context, title);
    try {
      if (backend.isBusy())
        throw new AppError("capacity_exhausted", "Too many calls of this client are open", {
          remedy: { action: "retry_later" },
        });
      const checked = input.check(withoutNulls(given ?? {}), "");
      // Tools that do not need the daemon do not use the client.
      const forkd = definition.needsDaemon === false ? (undefined as never) : await backend.forkd();
      const { signal } = context.mcpReq;
      const guest = await import("../guest.ts");
      const answer = await run(checked, { backend, forkd, guest, signal, progress });
      const { structured, content, more = [] } = answer;
      const blocks = content ?? [textBlock(JSON.stringify(structured, undefined, 2))];
      return { content: [...blocks, ...more], structuredContent: { ...structured } };
    } catch (error) {
      if (error instanceof AppError && error.code === "daemon_unreachable") backend.disconnect();
      const { errorResult } = await import("../results/errors.ts");
      return errorResult(error);
    }
  };
  return {
    name,
    register: (server, backend) => {
      server.registerTool(name, config, (given, context) => backend.track(call(given, context, backend)));
    },
  };
}

/** What clients see. The arguments are checked in `call`, so that their errors have a code and a remedy. */
function shown({ json }: AnyObject): StandardSchemaWithJSON<unknown, unknown> {
  const converted = () => ({ ...json });
  return {
    "~standard": {
      version: 1,
      vendor: "forkd",
      validate: (value) => ({ value }),
      jsonSchema: { input: converted, output: converted },
    },
  };
}

/** Models and the clients of the original send null for an argument that they leave out. */
function withoutNulls(given: unknown): unknown {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return given;
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));
}

function textBlock(text: string): ContentBlock {
  return { type: "text", text };
}

/** A list as the Rust forkd's MCP server answers: `{ result }`, and one block of JSON for each entry. */
export function listAnswer(result: readonly unknown[]): Answer {
  const content = result.map((entry) => textBlock(JSON.stringify(entry, undefined, 2)));
  return { structured: { result }, content };
}

/** Only reads. */
export const reads = {
  readOnlyHint: true,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false,
};
/** Adds something; a second call adds another. */
export const creates = {
  readOnlyHint: false,
  destructiveHint: false,
  idempotentHint: false,
  openWorldHint: false,
};
/** Changes or removes something; a second call has no further effect. */
export const replaces = {
  readOnlyHint: false,
  destructiveHint: true,
  idempotentHint: true,
  openWorldHint: false,
};
/** Runs what the caller gives: it can change anything in the sandbox, and the network if that is allowed. */
export const runs = {
  readOnlyHint: false,
  destructiveHint: true,
  idempotentHint: false,
  openWorldHint: true,
};
