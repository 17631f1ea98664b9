/** Files in a sandbox. */
import { z } from "zod";
import { inSandbox, sandboxPath } from "./ids.ts";
import { noAnswer, queryFlag, route } from "./route.ts";

const guestPathSchema = z
  .string()
  .min(1)
  .max(4096)
  .regex(/^\//, "must be an absolute path in the guest")
  .refine((path) => !path.includes("\0"), "must not contain NUL");
const user = z.string().max(128).optional();
/** octal text such as "0644" */
const modeSchema = z.string().regex(/^[0-7]{3,5}$/, 'must be octal, such as "0644"');
const flag = z.union([z.boolean(), queryFlag]).default(false);

export const fileEntrySchema = z.object({
  name: z.string(),
  path: z.string(),
  type: z.enum(["file", "directory", "symlink", "fifo", "socket", "block", "char"]),
  size: z.number(),
  /** octal text */
  mode: z.string(),
  mtime_unix: z.number(),
  uid: z.number(),
  gid: z.number(),
  target: z.string().optional(),
});
export type FileEntry = z.output<typeof fileEntrySchema>;

const pathQuerySchema = z.strictObject({ path: guestPathSchema, user });
const readQuerySchema = pathQuerySchema.extend({
  offset: z.coerce.number().int().min(0).default(0),
  /** 0 = to the end */
  limit: z.coerce.number().int().min(0).default(0),
});
const writeQuerySchema = pathQuerySchema.extend({
  mode: modeSchema.optional(),
  append: flag,
  exclusive: flag,
});
const mkdirSchema = pathQuerySchema.extend({
  mode: modeSchema.optional(),
  parents: z.boolean().default(true),
});
const moveSchema = z.strictObject({ from: guestPathSchema, to: guestPathSchema, user });
const removeSchema = pathQuerySchema.extend({ recursive: z.boolean().default(false) });
const chmodSchema = pathQuerySchema.extend({
  mode: modeSchema,
  recursive: z.boolean().default(false),
});
const statQuerySchema = pathQuerySchema.extend({ follow: flag });

export const fileRoutes = {
  readFile: route({
    method: "get",
    path: `${sandboxPath}/files`,
    summary: "Read a file",
    status: 200,
    kind: "bytes",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(readQuerySchema.shape),
    output: noAnswer,
  }),
  writeFile: route({
    method: "put",
    path: `${sandboxPath}/files`,
    summary: "Write a file (atomic), or append",
    status: 200,
    kind: "upload",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(writeQuerySchema.shape),
    output: fileEntrySchema,
  }),
  listFiles: route({
    method: "get",
    path: `${sandboxPath}/files/list`,
    summary: "List a directory",
    status: 200,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(pathQuerySchema.shape),
    output: z.array(fileEntrySchema),
  }),
  statFile: route({
    method: "get",
    path: `${sandboxPath}/files/stat`,
    summary: "Describe one file",
    status: 200,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(statQuerySchema.shape),
    output: fileEntrySchema,
  }),
  makeDirectory: route({
    method: "post",
    path: `${sandboxPath}/files/mkdir`,
    summary: "Make a directory",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(mkdirSchema.shape),
    output: noAnswer,
  }),
  moveFile: route({
    method: "post",
    path: `${sandboxPath}/files/move`,
    summary: "Move or rename",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(moveSchema.shape),
    output: noAnswer,
  }),
  removeFile: route({
    method: "post",
    path: `${sandboxPath}/files/remove`,
    summary: "Remove a file or a tree",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(removeSchema.shape),
    output: noAnswer,
  }),
  chmodFile: route({
    method: "post",
    path: `${sandboxPath}/files/chmod`,
    summary: "Change permissions",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend(chmodSchema.shape),
    output: noAnswer,
  }),
} as const;
