// SPDX-License-Identifier: MIT

import Companion
import Foundation

/// Captured frames and test vectors (`Sources/MeshCore/Tests/Fixtures`).
public enum Fixtures {
  private static let folder = URL(filePath: #filePath).deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures")

  /// Never changed after it was read.
  nonisolated(unsafe) private static let vectors: [String: Any] = {
    let data = try! Data(contentsOf: folder.appending(path: "vectors.json"))
    return try! JSONSerialization.jsonObject(with: data) as! [String: Any]
  }()

  public static func section(_ name: String) -> [[String: Any]] { vectors[name] as! [[String: Any]] }

  /// All recorded traces, by `version/name`.
  public static let traceNames: [String] = ["v1.15.0", "v1.17.1"].flatMap { version in
    let files = try! FileManager.default.contentsOfDirectory(atPath: folder.appending(path: "traces/\(version)").path())
    return files.filter { $0.hasSuffix(".jsonl") }.map { "\(version)/\($0.dropLast(6))" }
  }.sorted()

  public static func trace(_ name: String) -> [TraceLine] {
    let text = try! String(contentsOf: folder.appending(path: "traces/\(name).jsonl"), encoding: .utf8)
    return text.split(separator: "\n").map { line in
      let object = try! JSONSerialization.jsonObject(with: Data(line.utf8)) as! [String: Any]
      return TraceLine(
        toRadio: object["dir"] as! String == "tx", bytes: Hex.bytes(object["hex"] as! String)!,
        isRaw: object["raw"] as? Bool ?? false, note: object["note"] as? String)
    }
  }
}

public struct TraceLine: Sendable {
  public let toRadio: Bool
  public let bytes: [UInt8]
  /// Bytes as written to the port, framing included.
  public let isRaw: Bool
  public let note: String?
}
