/** Checks whether an answer matches the OpenAPI document. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { errorCodes } from "@forkd/contract";
import { operationFor, operationsOf, type Document, type Operation } from "./operations.ts";
import type { JsonSchema } from "./values.ts";

export type Answer = {
  readonly status: number;
  readonly type: string;
  readonly requestId: string | undefined;
  readonly body: Buffer;
  /** false if the client disconnected before the end */
  readonly whole: boolean;
};

/** The head of a request has at most 16 KiB, and this is most of it. */
const longTarget = 12 * 1024;
/** Paths of E2B's API, which the document does not describe. */
const isE2bPath = /^\/v[23]\/(?:sandboxes|snapshots|templates|teams|api-keys|access-tokens)(?:[/?]|$)/;
/** Failures that no request may cause on a working host. */
const neverExpected = new Set(["internal", "snapshot_corrupt", "host_not_ready", "engine_failed"]);

export class Judge {
  readonly operations: Operation[];
  readonly #ajv = new Ajv2020({ strict: false, validateFormats: false });
  readonly #codes: Set<string>;
  readonly #errorSchema: JsonSchema;

  constructor(document: Document) {
    this.operations = operationsOf(document);
    this.#errorSchema = document.components.schemas.Error;
    this.#codes = new Set(document.components.schemas.Error.properties.code.enum);
  }

  /** Whether the answer may be a stream, which may never end. */
  mayStream(method: string, target: string): boolean {
    const operation = operationFor(this.operations, method, pathOf(target));
    const types = Object.values(operation?.answers ?? {}).flatMap((each) => Object.keys(each));
    return types.some((type) => type !== "application/json");
  }

  /** Describes what is wrong with the answer; undefined if it is correct. */
  fault(method: string, target: string, answer: Answer): string | undefined {
    if (isE2bPath.test(target)) {
      const fault = faultForE2b(method, answer);
      // A head that is too long is answered before its path is looked at.
      return fault && target.length > longTarget ? this.#faultOfError(method, answer) : fault;
    }
    if (answer.status >= 400) return this.#faultOfError(method, answer);
    if (target.split("?", 1)[0] === "/openapi.json") return undefined;
    const operation = operationFor(this.operations, method, pathOf(target));
    if (!operation) return `success without a route: ${answer.status}`;
    const types = operation.answers[answer.status];
    if (!types) return `${operation.name} answered with the undocumented status ${answer.status}`;
    if (method === "HEAD") return answer.body.length > 0 ? "HEAD has a body" : undefined;
    if (Object.keys(types).length === 0)
      return answer.body.length > 0 ? "a body that the document does not describe" : undefined;
    const schema = types[answer.type];
    if (!schema) return `${operation.name} answered with the undocumented type "${answer.type}"`;
    if (answer.type === "application/json")
      return answer.whole ? this.#mismatch(schema, answer.body.toString()) : undefined;
    if (answer.type !== "application/x-ndjson") return undefined;
    const lines = answer.body.toString().split("\n");
    const rest = lines.pop();
    if (answer.whole && rest !== "") return "the last line is not complete";
    for (const line of lines) {
      const wrong = this.#mismatch(schema, line) ?? internalLine(line);
      if (wrong !== undefined) return wrong;
    }
    return undefined;
  }

  #faultOfError(method: string, answer: Answer): string | undefined {
    if (answer.requestId === undefined) return `${answer.status} without x-request-id`;
    if (method === "HEAD") return answer.status === 500 ? "500" : undefined;
    if (answer.type !== "application/json") return `${answer.status} with the type "${answer.type}"`;
    const text = answer.body.toString();
    const wrong = this.#mismatch(this.#errorSchema, text);
    if (wrong !== undefined) return wrong;
    const body = JSON.parse(text) as { code: string; error: string; details?: unknown; request_id?: string };
    if (!this.#codes.has(body.code)) return `unknown code ${body.code}`;
    if (body.request_id !== answer.requestId) return `request_id differs from the header: ${text}`;
    if (body.details === undefined) return `no details: ${text}`;
    if (body.error.trim() === "") return "an error without a message";
    if (neverExpected.has(body.code)) return text.slice(0, 500);
    const { status } = errorCodes[body.code as keyof typeof errorCodes];
    if (status !== answer.status) return `${body.code} with status ${answer.status}, not ${status}`;
    return undefined;
  }

  #mismatch(schema: JsonSchema, text: string): string | undefined {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return `not JSON: ${text.slice(0, 200)}`;
    }
    // Ajv compiles each schema object once.
    const validate = this.#ajv.compile(schema);
    if (validate(value)) return undefined;
    return `does not match the schema: ${this.#ajv.errorsText(validate.errors)} in ${text.slice(0, 300)}`;
  }
}

/** The path as a server resolves it, without dot segments. */
function pathOf(target: string): string {
  return new URL(`http://host${target}`).pathname;
}

function internalLine(line: string): string | undefined {
  const { type, code } = JSON.parse(line) as { type?: string; code?: string };
  return type === "error" && code !== undefined && neverExpected.has(code) ? line.slice(0, 500) : undefined;
}

/** Errors of E2B's API have a number and a text. */
function faultForE2b(method: string, answer: Answer): string | undefined {
  if (answer.status < 400 || method === "HEAD") return undefined;
  const { code, message } = JSON.parse(answer.body.toString()) as { code?: unknown; message?: unknown };
  if (answer.status === 500 || code !== answer.status || typeof message !== "string" || message === "")
    return `${answer.status} from E2B's API: ${answer.body.toString().slice(0, 500)}`;
  return undefined;
}
