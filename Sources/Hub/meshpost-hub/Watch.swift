// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import FoundationEssentials
import Glibc
import HTTP
import JSON

/// Shows messages of all gateways as they arrive at a hub.
struct Watch: ParsableCommand {
  static let configuration = CommandConfiguration(abstract: "Show messages as they arrive at a hub.")

  @Option(help: "The hub's URL.") var url = "http://127.0.0.1:8787"
  @Option(help: "The file with a token that has read access.") var tokenFile: String
  @Option(help: "Polling interval in seconds (0.1 to 86400).") var interval = 1.0

  func validate() throws {
    guard (0.1...86400).contains(interval) else { throw ValidationError("--interval: 0.1 to 86400") }
  }

  func run() throws {
    guard let (endpoint, path) = HTTPEndpoint.parse(url), case .tcp(_, _, false) = endpoint else {
      throw ValidationError("--url: expected http://HOST:PORT")
    }
    guard let token = FileManager.default.contents(atPath: tokenFile).map({ String(decoding: $0, as: UTF8.self) })
    else {
      throw ValidationError("--token-file \(tokenFile): cannot be read")
    }
    let watcher = HubWatcher(endpoint, path, token: token.filter { !$0.isWhitespace }, interval)
    watcher.run()
  }
}

/// Polls the hub: first the list of gateways, then the new messages of each.
final class HubWatcher {
  private let loop = EventLoop()
  private let client: HTTPClient
  private let path: String
  private let token: String
  private let interval: Double
  private var seen: [String: Int64] = [:]

  init(_ endpoint: HTTPEndpoint, _ path: String, token: String, _ interval: Double) {
    client = HTTPClient(endpoint, on: loop)
    self.path = path
    self.token = token
    self.interval = interval
  }

  func run() {
    loop.run {
      // Nobody cancels it.
      do throws(CancellationError) { while true { try await self.look() } } catch {}
    }
  }

  private func look() async throws(CancellationError) {
    let answer = await get("/v1/gateways?limit=1000")
    for gateway in (answer?["gateways"]?.array ?? []).compactMap({ $0["gateway"]?.string }) { await visit(gateway) }
    try await loop.sleep(for: .seconds(interval))
  }

  /// Shows the new messages of a gateway, page by page.
  private func visit(_ gateway: String) async {
    var page: JSONValue?
    repeat {
      page = await get(
        "/v1/gateways/\(PercentCoding.encode(gateway))/messages?after=\(seen[gateway] ?? 0)&limit=100")
      for message in page?["messages"]?.array ?? [] { show(message, of: gateway) }
    } while page?["next"] != nil
  }

  private func show(_ message: JSONValue, of gateway: String) {
    seen[gateway] = message["id"]?.integer ?? seen[gateway]
    let body = message["body"] ?? .null
    let sender = body["sender_name"]?.string ?? body["sender"]?.string ?? "?"
    let place = body["channel_name"]?.string.map { "[\($0)] " } ?? ""
    let line =
      "hub ← \(gateway) #\(message["seq"]?.integer ?? 0)  \(place)\(sender): \(body["text"]?.string ?? "(data)")"
    print(line)
    fflush(nil)
  }

  private func get(_ target: String) async -> JSONValue? {
    let request = HTTPRequest("GET", path + target, headers: ["Authorization": "Bearer \(token)"])
    // `try?`: an invalid answer counts as none; the next poll comes soon.
    guard let response = try? await client.send(request, timeout: .seconds(10)), response.status == 200 else {
      return nil
    }
    return try? JSONValue(parsing: response.body)  // as above
  }
}
