export { openE2b, type E2b } from "./e2b.ts";
export { sendAnswer, sendFailure } from "./control/answer.ts";
export { controlRoutes, noSuchRoute, type ControlName, type ControlRoute } from "./control/routes.ts";
export { isOwnPort, routeOf, type Routed } from "./route.ts";
export { aliasOf } from "./templates/names.ts";
export type { Target } from "./types.ts";
