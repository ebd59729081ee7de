// Why there is no plan of the text as it is; in place of a view, or above one of an earlier text.
import { planObstacle } from "../store";

export function Obstacle({ isAbove }: { isAbove: boolean }) {
  const why = planObstacle.value;
  if (why === null) return null;
  return isAbove ? <p class="stale">{why}</p> : <div class="nothing"><p>{why}</p></div>;
}
