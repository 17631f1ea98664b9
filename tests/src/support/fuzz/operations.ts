/** The operations of an OpenAPI document, in a form that is easy to make requests from. */
import type { JsonSchema } from "./values.ts";

export type Operation = {
  readonly name: string;
  readonly method: string;
  /** with {parameters} */
  readonly path: string;
  readonly inPath: Readonly<Record<string, JsonSchema>>;
  readonly inQuery: Readonly<Record<string, JsonSchema>>;
  readonly neededInQuery: readonly string[];
  readonly body: JsonSchema | undefined;
  readonly upload: boolean;
  /** status → content type → schema; a status without content has an empty object */
  readonly answers: Readonly<Record<string, Readonly<Record<string, JsonSchema>>>>;
};

type Parameter = { name: string; in: string; required?: boolean; schema: JsonSchema };
type Content = Record<string, { schema: JsonSchema }>;
type Described = {
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { content: Content };
  responses: Record<string, { content?: Content }>;
};
export type Document = {
  paths: Record<string, Record<string, Described>>;
  components: { schemas: { Error: JsonSchema & { properties: { code: { enum: string[] } } } } };
};

export function operationsOf(document: Document): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => operationOf(path, method, described)),
  );
}

function operationOf(path: string, method: string, described: Described): Operation {
  const { parameters = [], requestBody, responses } = described;
  const content = requestBody?.content ?? {};
  const inQuery = parameters.filter((parameter) => parameter.in === "query");
  return {
    name: described.operationId,
    method: method.toUpperCase(),
    path,
    inPath: schemasOf(parameters.filter((parameter) => parameter.in === "path")),
    inQuery: schemasOf(inQuery),
    neededInQuery: inQuery.filter(({ required }) => required === true).map(({ name }) => name),
    body: content["application/json"]?.schema,
    upload: "application/octet-stream" in content,
    answers: Object.fromEntries(
      Object.entries(responses)
        .filter(([status]) => status !== "default")
        .map(([status, { content: types = {} }]) => [
          status,
          Object.fromEntries(Object.entries(types).map(([type, { schema }]) => [type, schema])),
        ]),
    ),
  };
}

function schemasOf(parameters: readonly Parameter[]): Record<string, JsonSchema> {
  return Object.fromEntries(parameters.map(({ name, schema }) => [name, schema]));
}

/** The operation that a request line selects, if any. */
export function operationFor(
  operations: readonly Operation[],
  method: string,
  target: string,
): Operation | undefined {
  const path = target.split("?", 1)[0] ?? "";
  const asked = method === "HEAD" ? "GET" : method;
  const fits = (pattern: string) => new RegExp(`^${pattern.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(path);
  const found = operations.filter((operation) => operation.method === asked && fits(operation.path));
  // A literal path comes before one with parameters.
  return found.sort((one, other) => countOf(one.path) - countOf(other.path))[0];
}

function countOf(path: string): number {
  return path.split("{").length;
}
