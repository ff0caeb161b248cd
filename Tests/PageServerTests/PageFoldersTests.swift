// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

@Suite struct PageFoldersTests {
  private static let folder = Checkout.folder.appending(path: "Sources/Pages")

  private func text(_ name: String) throws -> String {
    try String(contentsOf: Self.folder.appending(path: name), encoding: .utf8)
  }

  /// Files that the service worker keeps: of both hosts, of gateways, of hubs.
  private func kept(_ list: String) throws -> Set<String> {
    let words = try text("worker.js").components(separatedBy: "const \(list) = [")[1].components(separatedBy: "];")[0]
    return Set(words.components(separatedBy: "\"").filter { $0.hasPrefix("/pages/") }.map { String($0.dropFirst(7)) })
  }

  @Test func `what a browser keeps for when the line is cut is all that there is`() throws {
    let given = try FileManager.default.subpathsOfDirectory(atPath: Self.folder.path()).filter { name in
      [".js", ".css", ".svg"].contains { name.hasSuffix($0) } && name != "worker.js"
    }
    let (both, gateway, hub) = try (kept("BOTH"), kept("GATEWAY"), kept("HUB"))
    #expect(Set(given) == both.union(gateway).union(hub))
    #expect(both.isDisjoint(with: gateway.union(hub)) && gateway.isDisjoint(with: hub))
  }

  @Test(arguments: ["GATEWAY", "HUB"]) func `what a host's page imports is kept with it`(_ host: String) throws {
    let kept = try kept("BOTH").union(kept(host))
    // The page's beginning has a way to either host.
    for name in kept where name.hasSuffix(".js") && name != "app.js" {
      let folder = URL(filePath: "/\(name)").deletingLastPathComponent()
      for match in try text(name).matches(of: /(?:import|from) ?\(?"(\.[^"]+)"/) {
        let other = String(folder.appending(path: String(match.1)).standardized.path().dropFirst())
        #expect(kept.contains(other), "\(name) imports \(other)")
      }
    }
  }
}
