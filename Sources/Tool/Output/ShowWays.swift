// SPDX-License-Identifier: MIT

import Console
import ControlShapes
import JSON

extension Show {
  /// The copies of a message, one a line: by which repeaters it came.
  static func ways(_ message: JSONValue) -> [Styled] {
    let (row, nodes) = (Shape.Way(), message[Shape.Message().wayNodes])
    let lines = (message[Shape.Message().ways] + message[Shape.Message().heardBy]).map { way in
      let path = way[row.path].map { hop($0, nodes) }
      let hops = way[row.hops] ?? 0
      var words = path.isEmpty ? "direct" : path.joined(separator: " → ")
      if hops > 0 { words += " → … (\(counted(hops, "hop")))" }
      if way[row.route] == "direct" {
        words = path.isEmpty ? "by a known path" : "by a known path, on its way to \(words)"
      }
      let region = way[row.region] ?? way[row.regionCode].map { "code \($0)" }
      if let region { words += ", region \(clean(region))" }
      let signal = "\(way[row.snr] ?? 0) dB, \(way[row.rssi] ?? 0) dBm"
      let guess = way[row.guess] == true ? ", perhaps" : ""
      return Styled("    \(time(way[row.at])) \(words) (\(signal))\(guess)", .faint)
    }
    guard let more = message[Shape.Message().waysMore] else { return lines }
    return lines + [Styled("    … and \(more) more that \(more == 1 ? "is" : "are") not kept", .faint)]
  }

  /// A hash, with the known nodes that have it.
  private static func hop(_ hash: String, _ nodes: [JSONValue]) -> String {
    let row = Shape.WayNodes()
    guard let found = nodes.first(where: { $0[row.hash] == hash }) else { return clean(hash) }
    let names = found[row.nodes].map { clean($0[Shape.WayNode().name]) }
    let more = found[row.more].map { ["\($0) more"] } ?? []
    return names.isEmpty ? clean(hash) : "\(clean(hash)) (\((names + more).joined(separator: " or "))?)"
  }
}
