// Draws what is in sight onto a canvas; what would be too small to read is left out.
import { closedLine, cropped, FONT, SMALL } from "./layout";
import type { Box, ContainerBox, Layout, NodeBox, PortBox, Route } from "./layout";
import type { Palette } from "./palette";

export interface Camera {
  k: number;
  x: number;
  y: number;
}

export interface Marks {
  selected: string | null;
  hovered: string | null;
  /** The node that comes next in the step view. */
  current: string | null;
  found: Set<string>;
  /** Nodes of the kernel that is selected in the code view. */
  related: Set<string>;
  colour: (box: NodeBox) => string;
}

interface Sight {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export function drawGraph(
  context: CanvasRenderingContext2D, width: number, height: number, camera: Camera, layout: Layout, marks: Marks, colours: Palette,
): void {
  const ratio = window.devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  context.setTransform(ratio * camera.k, 0, 0, ratio * camera.k, ratio * camera.x, ratio * camera.y);
  const sight = {
    left: -camera.x / camera.k, top: -camera.y / camera.k, right: (width - camera.x) / camera.k,
    bottom: (height - camera.y) / camera.k,
  };
  const painter = new Painter(context, camera.k, sight, marks, colours);
  for (const box of layout.containers) painter.container(box);
  for (const one of layout.routes) painter.route(one);
  for (const box of layout.ports) painter.port(box);
  for (const box of layout.nodes) painter.node(box);
  for (const one of layout.routes) painter.label(one);
}

class Painter {
  constructor(
    private readonly context: CanvasRenderingContext2D, private readonly scale: number, private readonly sight: Sight,
    private readonly marks: Marks, private readonly colours: Palette,
  ) {}

  private isSeen(box: Box): boolean {
    const { left, top, right, bottom } = this.sight;
    return box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;
  }

  private outline(id: string): { colour: string; width: number } | null {
    if (id === this.marks.current) return { colour: this.colours.state, width: 3 };
    if (id === this.marks.selected) return { colour: this.colours.accent, width: 2.5 };
    if (this.marks.related.has(id)) return { colour: this.colours.accent, width: 1.8 };
    if (this.marks.found.has(id)) return { colour: this.colours.carried, width: 2 };
    return id === this.marks.hovered ? { colour: this.colours.ink, width: 1.2 } : null;
  }

  container(box: ContainerBox): void {
    if (!this.isSeen(box)) return;
    const { context, colours } = this;
    const { container } = box.branch;
    const tone = colours.container[container.kind] ?? colours.line;
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, 8);
    context.fillStyle = colours.paper;
    context.fill();
    context.globalAlpha = box.isOpen ? 0.07 : 0.16;
    context.fillStyle = tone;
    context.fill();
    context.globalAlpha = 1;
    const mark = this.outline(box.id);
    context.strokeStyle = mark?.colour ?? tone;
    context.lineWidth = mark?.width ?? 1;
    if (container.kind === "loop" && !mark) context.setLineDash([6, 3]);
    context.stroke();
    context.setLineDash([]);
    if (!box.isOpen) this.shadow(box, tone);
    if (this.scale * 12 < 4.5) return;
    this.title(box, tone);
  }

  /** A second edge behind a closed container: there is more inside. */
  private shadow(box: ContainerBox, tone: string): void {
    const { context } = this;
    context.beginPath();
    context.moveTo(box.x + 8, box.y + box.height + 3);
    context.lineTo(box.x + box.width - 5, box.y + box.height + 3);
    context.strokeStyle = tone;
    context.lineWidth = 1;
    context.stroke();
  }

  private title(box: ContainerBox, tone: string): void {
    const { context, colours } = this;
    const { container } = box.branch;
    context.fillStyle = tone;
    const x = box.x + 12;
    const y = box.y + 15;
    context.beginPath();
    if (box.isOpen) context.moveTo(x, y - 3), context.lineTo(x + 8, y - 3), context.lineTo(x + 4, y + 3);
    else context.moveTo(x + 1, y - 5), context.lineTo(x + 7, y - 1), context.lineTo(x + 1, y + 3);
    context.fill();
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.font = `600 ${FONT}`;
    context.fillStyle = colours.ink;
    context.fillText(cropped(container.label), x + 15, y + 4);
    context.font = SMALL;
    context.fillStyle = colours.faint;
    if (box.isOpen) {
      context.textAlign = "right";
      context.fillText(cropped(container.detail, 40), box.x + box.width - 12, y + 4);
    } else context.fillText(closedLine(container), x + 15, y + 19);
  }

  node(box: NodeBox): void {
    if (!this.isSeen(box)) return;
    const { context, colours } = this;
    const colour = this.marks.colour(box);
    if (this.scale * box.height < 3) {
      context.fillStyle = colour;
      context.fillRect(box.x, box.y, box.width, box.height);
      return;
    }
    const isRound = box.node.index === null || box.node.kind === "return";
    const radius = isRound ? Math.min(14, box.height / 2) : 5;
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, radius);
    context.fillStyle = colours.box;
    context.fill();
    context.save();
    context.clip();
    context.globalAlpha = isRound ? 0.22 : 1;
    context.fillStyle = colour;
    if (isRound) context.fillRect(box.x, box.y, box.width, box.height);
    else context.fillRect(box.x, box.y, 4, box.height);
    context.restore();
    const mark = this.outline(box.id);
    context.strokeStyle = mark?.colour ?? colour;
    context.lineWidth = mark?.width ?? 1;
    context.stroke();
    if (this.scale * 12 >= 4.5) this.words(box);
  }

  private words(box: NodeBox): void {
    const { context, colours } = this;
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    context.font = `500 ${FONT}`;
    context.fillStyle = colours.ink;
    const middle = box.x + box.width / 2 + 2;
    context.fillText(cropped(box.node.label), middle, box.y + 18);
    if (this.scale * 10 < 4.5) return;
    context.font = SMALL;
    context.fillStyle = colours.faint;
    box.lines.forEach((line, number) => context.fillText(line, middle, box.y + 33 + number * 14));
  }

  port(box: PortBox): void {
    if (!this.isSeen(box) || this.scale * box.height < 3) return;
    const { context, colours } = this;
    const tone = box.port.kind === "state" ? colours.state : colours.faint;
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, 8);
    context.fillStyle = colours.paper;
    context.fill();
    context.strokeStyle = box.id === this.marks.hovered ? colours.ink : tone;
    context.lineWidth = 0.8;
    context.setLineDash([2, 2]);
    context.stroke();
    context.setLineDash([]);
    if (this.scale * 10 < 4.5) return;
    context.font = SMALL;
    context.textAlign = "center";
    context.fillStyle = tone;
    context.fillText(cropped(box.port.variable, 24), box.x + box.width / 2, box.y + 11.5);
  }

  private style(one: Route): { colour: string; dash: number[]; width: number } {
    const { colours, marks } = this;
    const { edge } = one;
    const near = marks.selected ?? "";
    const isNear = near !== "" && [edge.source, edge.target, edge.from, edge.to].includes(near);
    const width = isNear ? 2.2 : 1.1;
    if (edge.kind === "carried") return { colour: colours.carried, dash: [5, 3], width: isNear ? 2.2 : 1.4 };
    if (edge.kind === "state") return { colour: colours.state, dash: [2, 3], width: isNear ? 2.2 : 1.4 };
    if (edge.kind === "index") return { colour: isNear ? colours.accent : colours.line, dash: [1.5, 3], width };
    return { colour: isNear ? colours.accent : colours.line, dash: [], width };
  }

  route(one: Route): void {
    const { left, top, right, bottom } = this.sight;
    if (one.left > right || one.right < left || one.top > bottom || one.bottom < top || one.points.length < 2) return;
    const { context } = this;
    const { colour, dash, width } = this.style(one);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(this.scale > 0.2 ? dash : []);
    context.beginPath();
    const points = one.points;
    const first = points[0] as { x: number; y: number };
    context.moveTo(first.x, first.y);
    if (this.scale < 0.15) for (const point of points) context.lineTo(point.x, point.y);
    else this.curve(points);
    context.stroke();
    context.setLineDash([]);
    if (this.scale > 0.25) this.arrow(points, colour);
  }

  private curve(points: { x: number; y: number }[]): void {
    const last = points[points.length - 1] as { x: number; y: number };
    for (let at = 1; at + 1 < points.length; at++) {
      const here = points[at] as { x: number; y: number };
      const next = points[at + 1] as { x: number; y: number };
      const end = at + 2 === points.length ? last : { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 };
      this.context.quadraticCurveTo(here.x, here.y, end.x, end.y);
    }
    if (points.length === 2) this.context.lineTo(last.x, last.y);
  }

  private arrow(points: { x: number; y: number }[], colour: string): void {
    const { context } = this;
    const tip = points[points.length - 1] as { x: number; y: number };
    const before = points[points.length - 2] as { x: number; y: number };
    const angle = Math.atan2(tip.y - before.y, tip.x - before.x);
    context.beginPath();
    context.moveTo(tip.x, tip.y);
    context.lineTo(tip.x - 6 * Math.cos(angle - 0.45), tip.y - 6 * Math.sin(angle - 0.45));
    context.lineTo(tip.x - 6 * Math.cos(angle + 0.45), tip.y - 6 * Math.sin(angle + 0.45));
    context.fillStyle = colour;
    context.fill();
  }

  label(one: Route): void {
    if (!one.at || this.scale * 10 < 5) return;
    const { left, top, right, bottom } = this.sight;
    if (one.at.x > right || one.at.x < left || one.at.y > bottom || one.at.y < top) return;
    const { context, colours } = this;
    context.font = SMALL;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const wide = context.measureText(one.label).width;
    context.globalAlpha = 0.85;
    context.fillStyle = colours.paper;
    context.fillRect(one.at.x - wide / 2 - 2, one.at.y - 7, wide + 4, 14);
    context.globalAlpha = 1;
    context.fillStyle = colours.faint;
    context.fillText(one.label, one.at.x, one.at.y);
    context.textBaseline = "alphabetic";
  }
}

/** The whole picture in a corner, with a frame around what is in sight. */
export function drawMinimap(
  context: CanvasRenderingContext2D, width: number, height: number, camera: Camera, size: { width: number; height: number },
  layout: Layout, marks: Marks, colours: Palette,
): { scale: number; x: number; y: number } {
  const ratio = window.devicePixelRatio || 1;
  const scale = Math.min((width - 8) / Math.max(layout.width, 1), (height - 8) / Math.max(layout.height, 1));
  const x = (width - layout.width * scale) / 2;
  const y = (height - layout.height * scale) / 2;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  for (const box of layout.containers) {
    context.globalAlpha = 0.25;
    context.fillStyle = colours.container[box.branch.container.kind] ?? colours.line;
    context.fillRect(x + box.x * scale, y + box.y * scale, Math.max(box.width * scale, 1), Math.max(box.height * scale, 1));
  }
  context.globalAlpha = 0.8;
  for (const box of layout.nodes) {
    context.fillStyle = marks.colour(box);
    context.fillRect(x + box.x * scale, y + box.y * scale, Math.max(box.width * scale, 1), Math.max(box.height * scale, 1));
  }
  context.globalAlpha = 1;
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.strokeRect(
    x + (-camera.x / camera.k) * scale, y + (-camera.y / camera.k) * scale, (size.width / camera.k) * scale,
    (size.height / camera.k) * scale,
  );
  return { scale, x, y };
}
