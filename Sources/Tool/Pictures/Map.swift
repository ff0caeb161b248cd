// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
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
    let page = try OutputFile.write(MapPage.html(data), to: output.file, replaces: output.force)
    others.tell("nodes", radio, connection)
    if connection.json { page.tell(JSONValue.object([("nodes", .integer(Int64(nodes.count)))]).text) }
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

/// The page, with `map.css` and `map.js` in it. Names come over the air: the page has them as data and never as markup, and its policy allows only
/// this script.
enum MapPage {
  private static let style = String(decoding: PackageResources.map_css, as: UTF8.self)
  private static let script = String(decoding: PackageResources.map_js, as: UTF8.self)

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
  private static func hash(_ text: String) -> String { "'sha256-\(Base64.padded(Digest.sha256(Array(text.utf8))))'" }

  /// The same value with visible control characters: a name must not reorder the text beside it.
  private static func seen(_ value: JSONValue) -> JSONValue {
    switch value {
    case .string(let text): .string(Visible.line(text))
    case .array(let values): .array(values.map(seen))
    case .object(let fields): .object(fields.map { ($0.0, seen($0.1)) })
    default: value
    }
  }

}
