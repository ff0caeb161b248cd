// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import EventLoop
import Glibc
import HTTP
import Hub
import JSON

/// Shows messages of all gateways as they arrive at a hub.
struct Watch: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Show messages as they arrive at a hub.",
    discussion: """
      Each message is shown once, with the gateway that heard it first, from now on. While the hub is away, it waits for it.
      """)

  @Option(help: "The hub's URL.") var url = "http://127.0.0.1:8787"
  @Option(help: "The file with a token that has read access.") var tokenFile: String
  @Option(help: "Polling interval in seconds (0.1 to 86400).") var interval = 1.0

  func validate() throws {
    guard (0.1...86400).contains(interval) else { throw ValidationError("--interval: 0.1 to 86400") }
  }

  func run() throws {
    guard let (endpoint, path) = HTTPEndpoint.parse(url), case .tcp(_, _, false) = endpoint else {
      throw failure("--url \(url): expected http://HOST:PORT", 64)  // EX_USAGE
    }
    let token: String
    do throws(ReadFailure) {
      token = String(decoding: try ReadFailure.contents(of: tokenFile), as: UTF8.self).filter { !$0.isWhitespace }
    } catch {
      throw failure("--token-file \(tokenFile): \(error.reason)", 66)  // EX_NOINPUT
    }
    guard !token.isEmpty else { throw failure("--token-file \(tokenFile): it is empty", 66) }  // EX_NOINPUT
    let refusal = HubWatcher(endpoint, path, token: token, interval).run()
    let need = "--token-file \(tokenFile) needs a token of the hub with access = \"read\", for all gateways"
    throw failure("\(url) refuses: \(refusal). \(need)", 77)  // EX_NOPERM
  }
}

/// Polls the hub's joined messages.
final class HubWatcher {
  /// `refused`: the hub does not accept the token.
  private enum Trouble: Error { case refused(String), away(String) }

  /// Most gateways that a line names.
  private static let named = 3
  private static let longestPause: Duration = .seconds(30)

  private let loop = EventLoop()
  private let client: HTTPClient
  private let path: String
  private let token: String
  private let interval: Duration
  /// The last message that was shown, or that was there before; `nil`: unknown.
  private var seen: Int64?

  init(_ endpoint: HTTPEndpoint, _ path: String, token: String, _ interval: Double) {
    client = HTTPClient(endpoint, on: loop)
    self.path = path
    self.token = token
    self.interval = .seconds(interval)
  }

  /// Returns when the hub refuses the token, with its reason.
  func run() -> String {
    var refusal = "it was abandoned"
    loop.run {
      do throws(CancellationError) {
        refusal = try await self.watch()
      } catch {
        // Nobody cancels it.
      }
      self.loop.stop()
    }
    return refusal
  }

  private func watch() async throws(CancellationError) -> String {
    var pause = interval
    var isAway = false
    while true {
      do throws(Trouble) {
        try await look(isBack: isAway)
        if isAway { Console.error("the hub answers again") }
        (isAway, pause) = (false, interval)
      } catch {
        switch error {
        case .refused(let refusal): return refusal
        case .away(let reason):
          if !isAway { Console.error("warning: the hub does not answer: \(reason); still trying") }
          (isAway, pause) = (true, max(interval, min(pause * 2, Self.longestPause)))
        }
      }
      try await loop.sleep(for: pause)
    }
  }

  /// Shows the new messages, page by page.
  private func look(isBack: Bool) async throws(Trouble) {
    if isBack || seen == nil {
      let newest = try await page("order=newest&limit=1")["messages"]?.array?.first?["position"]?.integer ?? 0
      // A hub with an older copy of its database begins at smaller numbers.
      seen = min(seen ?? newest, newest)
    }
    var goesOn = true
    while goesOn {
      let page = try await page("after=\(seen ?? 0)&limit=100")
      for message in page["messages"]?.array ?? [] { show(message) }
      goesOn = page["next"] != nil
    }
  }

  private func show(_ message: JSONValue) {
    seen = message["position"]?.integer ?? seen
    let body = message["body"] ?? .null
    let hearers = message["heard"]?.array ?? []
    let names = hearers.prefix(Self.named).map { hearer in
      (hearer["gateway"]?.string ?? "?") + (hearer["seq"]?.integer.map { " #\($0)" } ?? "")
    }.joined(separator: ", ")
    let others = hearers.count > Self.named ? " and \(hearers.count - Self.named) more" : ""
    let sender = body["sender_name"]?.string ?? body["sender"]?.string ?? "?"
    let place = body["channel_name"]?.string.map { "[\($0)] " } ?? ""
    print("hub ← \(names)\(others)  \(place)\(sender): \(body["text"]?.string ?? "(data)")")
  }

  private func page(_ parameters: String) async throws(Trouble) -> JSONValue {
    let request = HTTPRequest("GET", "\(path)/v1/messages?\(parameters)", headers: ["Authorization": "Bearer \(token)"])
    let response: HTTPResponse
    do throws(HTTPFailure) {
      response = try await client.send(request, timeout: .seconds(10))
    } catch {
      throw .away(error.description)
    }
    // `try?`: without a JSON object the status has to do.
    let body = try? JSONValue(parsing: response.body)
    switch response.status {
    case 200:
      guard let body else { throw .away("its answer is not JSON") }
      return body
    case 401, 403: throw .refused(body?["error"]?.string ?? "HTTP \(response.status)")
    default:
      let words = body?["error"]?.string.map { ": \($0)" } ?? ""
      throw .away("HTTP \(response.status)\(words)")
    }
  }
}
