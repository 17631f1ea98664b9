/** Files in a sandbox. */
import { z } from "zod";
import { errorEventSchema } from "./error-body.ts";
import { inSandbox, sandboxPath } from "./ids.ts";
import { noAnswer, queryFlag, route } from "./route.ts";

const guestPathSchema = z
  .string()
  .min(1)
  .max(4096)
  .regex(
    /^(\/|~(\/|$))/,
    'must be an absolute path in the guest, or start with "~/" for the home of the user',
  )
  .refine((path) => !path.includes("\0"), "must not contain NUL");
const user = z.string().max(128).optional();
/** octal text such as "0644" */
const modeSchema = z.string().regex(/^[0-7]{3,5}$/, 'must be octal, such as "0644"');
const flag = z.union([z.boolean(), queryFlag]).default(false);

/** Deepest listing */
const maxListDepth = 64;

const fileTypeSchema = z.enum(["file", "directory", "symlink", "fifo", "socket", "block", "char"]);

export const fileEntrySchema = z.object({
  name: z.string(),
  /** absolute */
  path: z.string(),
  type: fileTypeSchema,
  size: z.number(),
  /** octal text */
  mode: z.string(),
  mtime_unix: z.number(),
  uid: z.number(),
  gid: z.number(),
  /** names of uid and gid in the guest; absent if they have none */
  owner: z.string().optional(),
  group: z.string().optional(),
  /** text of a symbolic link */
  target: z.string().optional(),
  /** the file that a symbolic link leads to; absent if it leads nowhere */
  resolved: z.object({ path: z.string(), type: fileTypeSchema, mode: z.string() }).optional(),
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
  /** write into the file instead of replacing it at the end: not atomic, and its inode stays */
  in_place: flag,
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
const listQuerySchema = pathQuerySchema.extend({
  /** levels below the directory; symbolic links are not followed */
  depth: z.coerce.number().int().min(1).max(maxListDepth).default(1),
});
const watchQuerySchema = pathQuerySchema.extend({
  recursive: flag,
  /** describe the file in create, write and chmod events */
  include_entry: flag,
});

/** Relative to the watched directory; "." is the directory itself */
const watchedPath = z.string();
const changed = { path: watchedPath, entry: fileEntrySchema.optional() };

/**
 * One line of a watch. `started` is the first: later changes are reported. A rename is `rename` with the old
 * and `create` with the new path, as far as they are below the directory. `overflow`: changes were lost below
 * this path, or its directories are too many or too deep to watch. `error` is the last.
 */
export const watchEventSchema = z.discriminatedUnion("type", [
  /** absolute path of the directory */
  z.object({ type: z.literal("started"), path: z.string() }),
  /** `from`: the old path, if it was renamed below the directory */
  z.object({ type: z.literal("create"), ...changed, from: watchedPath.optional() }),
  z.object({ type: z.literal("write"), ...changed }),
  z.object({ type: z.literal("chmod"), ...changed }),
  z.object({ type: z.literal("remove"), path: watchedPath }),
  z.object({ type: z.literal("rename"), path: watchedPath }),
  z.object({ type: z.literal("overflow"), path: watchedPath }),
  errorEventSchema,
]);
export type WatchEvent = z.output<typeof watchEventSchema>;

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
    input: inSandbox.extend(listQuerySchema.shape),
    output: z.array(fileEntrySchema),
  }),
  watchFiles: route({
    method: "get",
    path: `${sandboxPath}/files/watch`,
    summary: "Watch a directory for changes",
    status: 200,
    kind: "events",
    scope: "run",
    endless: true,
    intoGuest: true,
    input: inSandbox.extend(watchQuerySchema.shape),
    output: watchEventSchema,
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
