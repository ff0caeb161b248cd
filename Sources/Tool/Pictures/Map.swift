// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import COpenSSL
import Glibc
import JSON
import MeshCrypto
import UntrustedText

struct MapCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "map", abstract: "Write a map of nodes and their last known paths as an offline HTML page.",
    discussion: """
      A single HTML file that loads nothing from elsewhere: it can be sent, kept and opened offline. Nodes without a position \
      are only listed. A path is drawn through its repeaters, which are identified by key prefix; the line is dashed where a \
      prefix matches several nodes or none. --background takes GeoJSON, such as coastlines or roads.
      """)
  @OptionGroup var connection: Connection
  @OptionGroup var radio: RadioChoice
  @OptionGroup var output: OutputOption
  @Option(help: ArgumentHelp("GeoJSON to draw as the background.", valueName: "file")) var background: String?

  func run() throws {
    let client = ControlClient(connection)
    let status = try client.get("/v1/status").value
    var nodes: [JSONValue] = []
    let others = try client.rows(radio.target("/v1/contacts?on_radio=0")) { nodes.append($0) }
    let own = status[Shape.Status().radio]?[Shape.LinkState().identity]
    let fields: [(String, JSONValue?)] = [
      ("at", .string(Show.iso(Int64(time(nil)) * 1000))), ("own", own), ("nodes", .array(nodes)),
      ("background", try background.map { try Self.geoJSON($0) }),
    ]
    let data = JSONValue.object(fields.compactMap { name, value in value.map { (name, $0) } })
    if connection.json, output.file == nil { return print(json: data) }
    try OutputFile.write(MapPage.html(data), to: output.file)
    others.tell("nodes", radio, connection)
    if connection.json { print(json: .object([("nodes", .integer(Int64(nodes.count)))])) }
  }

  private static func geoJSON(_ location: String) throws -> JSONValue {
    do {
      let value = try JSONValue(parsing: try InputFile.read(location))
      guard value["type"]?.string != nil else { throw Failure.say("\(location) is not GeoJSON", EX_DATAERR) }
      return value
    } catch let error as JSONError {
      throw Failure.say("\(location) is not GeoJSON: \(error)", EX_DATAERR)
    }
  }
}

/// The page. Names come over the air: the page has them as data and never as markup, and its policy allows only this script.
enum MapPage {
  static func html(_ data: JSONValue) -> String {
    let json = Escaping.script(json: seen(data).bytes)
    let policy =
      "default-src 'none'; script-src \(hash(script)); style-src \(hash(style)); base-uri 'none'; form-action 'none'"
    return """
      <!DOCTYPE html>
      <html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="\(policy)">
      <title>Meshpost map</title><meta name="viewport" content="width=device-width, initial-scale=1">
      <style>\(style)</style></head><body><svg id="map" role="img" aria-label="Map of nodes"></svg><div id="side"><h1 id="title"></h1>
      <input id="find" placeholder="find a node" aria-label="find a node"><p id="about"></p><ul id="list"></ul></div>
      <script id="data" type="application/json">\(json)</script>
      <script>\(script)</script>
      </body></html>

      """
  }

  /// The hash by which a Content Security Policy allows a script.
  private static func hash(_ text: String) -> String {
    let digest = Digest.sha256(Array(text.utf8))
    var code = [UInt8](repeating: 0, count: 4 * ((digest.count + 2) / 3) + 1)
    let count = EVP_EncodeBlock(&code, digest, Int32(digest.count))
    return "'sha256-\(String(decoding: code.prefix(Int(count)), as: UTF8.self))'"
  }

  /// The same value with visible control characters: a name must not reorder the text beside it.
  private static func seen(_ value: JSONValue) -> JSONValue {
    switch value {
    case .string(let text): .string(Visible.line(text))
    case .array(let values): .array(values.map(seen))
    case .object(let fields): .object(fields.map { ($0.0, seen($0.1)) })
    default: value
    }
  }

  private static let style = """
    :root { --paper: #f7f5ef; --ink: #22262b; --faint: #d8d4c8; --quiet: #6b6f75; --chat: #2f6fb0; --repeater: #c2572b;
      --room: #6a4fa3; --sensor: #2e8b57; --own: #111; }
    @media (prefers-color-scheme: dark) { :root { --paper: #16191d; --ink: #e7e5df; --faint: #2c3138; --quiet: #9aa0a8;
      --chat: #6fb1f2; --repeater: #f2905f; --room: #b39ae8; --sensor: #6fcf97; --own: #fff; } }
    * { box-sizing: border-box } body { margin: 0; height: 100vh; display: flex; font: 14px/1.4 system-ui, sans-serif;
      background: var(--paper); color: var(--ink) }
    #map { flex: 1; min-width: 0; touch-action: none; cursor: grab } #side { width: 300px; overflow: auto; padding: 12px;
      border-left: 1px solid var(--faint) }
    @media (max-width: 640px) { body { flex-direction: column } #side { width: auto; height: 40vh; border: 0;
      border-top: 1px solid var(--faint) } }
    input { width: 100%; padding: 6px 8px; font: inherit; color: inherit; background: transparent;
      border: 1px solid var(--quiet); border-radius: 4px }
    h1 { font-size: 15px; margin: 0 0 8px } p { margin: 6px 0; color: var(--quiet) } ul { list-style: none; padding: 0; margin: 8px 0 }
    li { padding: 5px 6px; border-radius: 4px; cursor: pointer } li:hover, li.chosen { background: var(--faint) }
    li small { color: var(--quiet); display: block } .dot { display: inline-block; width: 9px; height: 9px; border-radius: 50%;
      margin-right: 7px }
    text { font: 12px system-ui, sans-serif; fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
    .grid { stroke: var(--faint); stroke-width: 1 } .grid + text, .axis { fill: var(--quiet); stroke: none; font-size: 11px }
    .path { fill: none; stroke: var(--quiet); stroke-width: 1.5; opacity: .55 } .path.guess { stroke-dasharray: 4 5 }
    .path.chosen { stroke: var(--repeater); stroke-width: 3; opacity: 1 } .beneath { fill: none; stroke: var(--quiet); opacity: .5 }
    g.node { cursor: pointer }
    """

  private static let script = """
    'use strict';
    const data = JSON.parse(document.getElementById('data').textContent);
    const svg = document.getElementById('map'), NS = svg.namespaceURI;
    const colours = { chat: 'var(--chat)', repeater: 'var(--repeater)', room: 'var(--room)', sensor: 'var(--sensor)', own: 'var(--own)' };
    const own = data.own ? { ...data.own, type: 'own', key: data.own.key || '' } : null;
    const nodes = (own ? [own] : []).concat(data.nodes.filter(n => !own || n.key !== own.key));
    const placed = nodes.filter(n => typeof n.lat === 'number' && typeof n.lon === 'number');
    const label = n => n.alias || n.name || n.key.slice(0, 12);

    // Degrees to a plane: distances east shrink with the cosine of the middle latitude.
    const middle = placed.length ? placed.reduce((sum, n) => sum + n.lat, 0) / placed.length : 0;
    const shrink = Math.cos(middle * Math.PI / 180) || 1, x = lon => lon * shrink, y = lat => -lat;
    let view = { x: -1, y: -1, width: 2 };
    function fit() {
      if (!placed.length) return;
      const xs = placed.map(n => x(n.lon)), ys = placed.map(n => y(n.lat));
      const box = svg.getBoundingClientRect(), ratio = box.height / box.width || 1;
      const width = Math.max(Math.max(...xs) - Math.min(...xs), (Math.max(...ys) - Math.min(...ys)) / ratio, 0.005) * 1.3;
      view = { width, x: (Math.max(...xs) + Math.min(...xs) - width) / 2, y: (Math.max(...ys) + Math.min(...ys) - width * ratio) / 2 };
    }
    const scale = () => svg.getBoundingClientRect().width / view.width;
    const px = lon => (x(lon) - view.x) * scale(), py = lat => (y(lat) - view.y) * scale();
    function add(parent, name, attributes, text) {
      const element = document.createElementNS(NS, name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      if (text !== undefined) element.textContent = text;
      parent.appendChild(element);
      return element;
    }

    // A path has the first 1 to 3 bytes of each repeater's key.
    function path(node) {
      if (!own || typeof own.lat !== 'number' || typeof node.lat !== 'number' || typeof node.path !== 'string') return null;
      const size = node.hops ? node.path.length / node.hops : 2, stops = [own];
      let guess = false;
      for (let at = 0; at < node.path.length; at += size) {
        const fitting = data.nodes.filter(n => n.type === 'repeater' && n.key.startsWith(node.path.slice(at, at + size)));
        if (fitting.length !== 1 || typeof fitting[0].lat !== 'number') guess = true; else stops.push(fitting[0]);
      }
      return { stops: stops.concat(node), guess };
    }

    let chosen = null;
    function draw() {
      svg.replaceChildren();
      grid();
      if (data.background) beneath(data.background);
      for (const node of placed) {
        const way = path(node);
        if (!way) continue;
        const points = way.stops.map(n => `${px(n.lon).toFixed(1)},${py(n.lat).toFixed(1)}`).join(' ');
        add(svg, 'polyline', { points, class: `path${way.guess ? ' guess' : ''}${node === chosen ? ' chosen' : ''}` });
      }
      // Draws names where there is room: this radio's first, then those of repeaters.
      const rank = n => n === chosen ? 0 : n.type === 'own' ? 1 : n.type === 'repeater' ? 2 : 3, taken = [], named = new Set();
      for (const node of placed.slice().sort((a, b) => rank(a) - rank(b))) {
        const box = { x: px(node.lon) - 8, y: py(node.lat) - 9, width: 24 + label(node).length * 7, height: 18 };
        if (taken.some(t => box.x < t.x + t.width && t.x < box.x + box.width && box.y < t.y + t.height && t.y < box.y + box.height)) continue;
        taken.push(box);
        named.add(node);
      }
      for (const node of placed.slice().reverse()) {
        const g = add(svg, 'g', { class: 'node', transform: `translate(${px(node.lon)} ${py(node.lat)})` });
        const colour = colours[node.type] || 'var(--quiet)';
        if (node.type === 'repeater') add(g, 'rect', { x: -6, y: -6, width: 12, height: 12, transform: 'rotate(45)', fill: colour });
        else add(g, 'circle', { r: node === chosen ? 9 : 6, fill: colour });
        if (node.type === 'own') add(g, 'circle', { r: 11, fill: 'none', stroke: colour, 'stroke-width': 2 });
        if (named.has(node)) add(g, 'text', { x: 11, y: 4 }, label(node));
        else add(g, 'title', {}, label(node));
        g.addEventListener('click', () => choose(node));
      }
    }
    function grid() {
      const box = svg.getBoundingClientRect();
      const steps = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 45], step = steps.find(s => s * scale() > 110) || 45;
      const lon0 = view.x / shrink, lon1 = (view.x + view.width) / shrink, lat1 = -view.y, lat0 = lat1 - box.height / scale();
      for (let lon = Math.ceil(lon0 / step) * step; lon < lon1; lon += step) {
        add(svg, 'line', { class: 'grid', x1: px(lon), x2: px(lon), y1: 0, y2: box.height });
        add(svg, 'text', { class: 'axis', x: px(lon) + 3, y: box.height - 6 }, `${+lon.toFixed(3)}°`);
      }
      for (let lat = Math.ceil(lat0 / step) * step; lat < lat1; lat += step) {
        add(svg, 'line', { class: 'grid', x1: 0, x2: box.width, y1: py(lat), y2: py(lat) });
        add(svg, 'text', { class: 'axis', x: 4, y: py(lat) - 3 }, `${+lat.toFixed(3)}°`);
      }
      const metres = 111320 / scale(), wanted = metres * 120, power = 10 ** Math.floor(Math.log10(wanted));
      const length = [5, 2, 1].map(n => n * power).find(n => n <= wanted) || power, bar = length / metres;
      add(svg, 'line', { x1: box.width - 16 - bar, x2: box.width - 16, y1: 22, y2: 22, stroke: 'currentColor', 'stroke-width': 2 });
      add(svg, 'text', { x: box.width - 16 - bar, y: 16 }, length >= 1000 ? `${length / 1000} km` : `${length} m`);
    }
    function beneath(shape) {
      const lines = [];
      const walk = item => {
        if (!item || typeof item !== 'object') return;
        if (Array.isArray(item.features)) item.features.forEach(f => walk(f.geometry));
        else if (Array.isArray(item.geometries)) item.geometries.forEach(walk);
        else if (item.type === 'Feature') walk(item.geometry);
        else if (item.type === 'LineString') lines.push(item.coordinates);
        else if (item.type === 'MultiLineString' || item.type === 'Polygon') lines.push(...item.coordinates);
        else if (item.type === 'MultiPolygon') item.coordinates.forEach(p => lines.push(...p));
      };
      walk(shape);
      for (const line of lines) add(svg, 'polyline', { class: 'beneath', points: line.map(c => `${px(c[0])},${py(c[1])}`).join(' ') });
    }

    function choose(node) {
      chosen = node;
      if (node && typeof node.lat === 'number') {
        const box = svg.getBoundingClientRect();
        if (px(node.lon) < 0 || px(node.lon) > box.width || py(node.lat) < 0 || py(node.lat) > box.height) {
          view.x = x(node.lon) - view.width / 2;
          view.y = y(node.lat) - box.height / scale() / 2;
        }
      }
      draw();
      list();
    }
    function list() {
      const wanted = document.getElementById('find').value.toLowerCase(), ul = document.getElementById('list');
      ul.replaceChildren();
      for (const node of nodes) {
        if (wanted && !label(node).toLowerCase().includes(wanted) && !node.key.startsWith(wanted)) continue;
        const li = document.createElement('li'), dot = document.createElement('span'), small = document.createElement('small');
        dot.className = 'dot';
        dot.style.background = colours[node.type] || 'var(--quiet)';
        const heard = node.last_heard ? `heard ${new Date(node.last_heard).toLocaleString()}` : '';
        const way = node.type === 'own' ? 'this radio' : typeof node.hops !== 'number' ? 'no path known' : node.hops === 0 ? 'direct' :
          `${node.hops} hop${node.hops > 1 ? 's' : ''}: ${node.path}`;
        small.textContent = [node.type === 'own' ? '' : node.type, way, heard, typeof node.lat === 'number' ? '' : 'no position']
          .filter(Boolean).join(', ');
        li.append(dot, label(node), small);
        if (node === chosen) li.className = 'chosen';
        li.addEventListener('click', () => choose(node));
        ul.appendChild(li);
      }
    }

    // Drag to move; wheel or two fingers to zoom.
    const fingers = new Map();
    const zoom = (factor, cx, cy) => {
      const mx = view.x + cx / scale(), my = view.y + cy / scale();
      view.width = Math.min(Math.max(view.width * factor, 1e-4), 720);
      view.x = mx - cx / scale();
      view.y = my - cy / scale();
      draw();
    };
    svg.addEventListener('wheel', e => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, e.offsetX, e.offsetY); }, { passive: false });
    svg.addEventListener('pointerdown', e => { fingers.set(e.pointerId, e); });
    window.addEventListener('pointerup', e => { fingers.delete(e.pointerId); });
    window.addEventListener('pointercancel', e => { fingers.delete(e.pointerId); });
    svg.addEventListener('pointermove', e => {
      const before = fingers.get(e.pointerId);
      if (!before) return;
      const [a, b] = [...fingers.values()];
      fingers.set(e.pointerId, e);
      if (fingers.size === 1) {
        view.x -= (e.clientX - before.clientX) / scale();
        view.y -= (e.clientY - before.clientY) / scale();
        draw();
      } else if (b) {
        const [c, d] = [...fingers.values()], length = (p, q) => Math.hypot(p.clientX - q.clientX, p.clientY - q.clientY) || 1;
        zoom(length(a, b) / length(c, d), (c.clientX + d.clientX) / 2, (c.clientY + d.clientY) / 2);
      }
    });
    document.getElementById('find').addEventListener('input', list);
    document.getElementById('title').textContent = own ? label(own) : 'Meshpost';
    document.getElementById('about').textContent =
      `${nodes.length} nodes, ${placed.length} with a position, ${new Date(data.at).toLocaleString()}`;
    window.addEventListener('resize', draw);
    fit();
    draw();
    list();
    """
}
