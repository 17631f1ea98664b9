/** Types of the wire → types of this SDK: the same rules as names.ts, for the compiler. */
import type { ResponseOf, RouteName } from "@forkd/contract";
import type { opaqueFields } from "@forkd/contract/wire";

type Opaque = (typeof opaqueFields)[number];

/** `snapshot_tag` → `snapshotTag` */
type CamelName<Name extends string> = Name extends `${infer Head}_${infer Rest}`
  ? `${Head}${Capitalize<CamelName<Rest>>}`
  : Name;

/** `ttl_secs` → `ttlMs`, `created_at_unix` → `createdAt` */
type CamelField<Name> = Name extends `${infer Stem}_secs`
  ? `${CamelName<Stem>}Ms`
  : Name extends `${infer Stem}_seconds`
    ? `${CamelName<Stem>}Ms`
    : Name extends `${infer Stem}_unix`
      ? CamelName<Stem>
      : Name extends string
        ? CamelName<Name>
        : Name;

type DateFor<T> = T extends number ? Date : T;
type QueryFlag = "true" | "false" | "1" | "0";
/** A boolean in a query, whose type on the wire is text. */
type IsFlag<T> = unknown extends T ? false : string extends T ? false : QueryFlag extends T ? true : false;

/** A value of an answer as this SDK returns it. */
export type Camel<T> = T extends readonly (infer Element)[]
  ? Camel<Element>[]
  : T extends object
    ? {
        [Name in keyof T as CamelField<Name>]: Name extends Opaque
          ? T[Name]
          : Name extends `${string}_unix`
            ? DateFor<T[Name]>
            : Camel<T[Name]>;
      }
    : T;

/** A value of a request as this SDK takes it. */
export type CamelInput<T> = T extends readonly (infer Element)[]
  ? readonly CamelInput<Element>[]
  : T extends object
    ? {
        [Name in keyof T as CamelField<Name>]: Name extends Opaque
          ? T[Name]
          : Name extends `${string}_unix`
            ? DateFor<T[Name]>
            : IsFlag<T[Name]> extends true
              ? boolean | undefined
              : CamelInput<T[Name]>;
      }
    : T;

/** The answer of a route as this SDK returns it. */
export type AnswerOf<N extends RouteName> = Camel<ResponseOf<N>>;
