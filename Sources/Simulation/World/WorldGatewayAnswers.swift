// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON

extension WorldGateway {
  // MARK: What it says each hour

  /// An upstream that stands still with events that wait is an alert within two hours, and no hour has more air time than it may.
  func checkHour() {
    guard !diskFails, let status = json("/v1/status") else { return standing = [:] }
    for upstream in status["upstreams"]?.array ?? [] {
      let name = upstream["name"]?.string ?? ""
      guard (upstream["pending"]?.integer ?? 0) > 0 else {
        standing[name] = nil
        continue
      }
      let acknowledged = upstream["acknowledged"]?.integer ?? 0
      let before = standing[name].map { $0.acknowledged == acknowledged ? $0.hours + 1 : 0 } ?? 0
      standing[name] = (acknowledged, before)
      let alerts = status["alerts"]?.array ?? []
      let isTold = alerts.contains { $0["rule"]?.string == "backlogged" && $0["subject"]?.string == name }
      if before >= 2, !isTold {
        breaches.append(
          "\(name) stands still for two hours without an alert: \(upstream.text.prefix(300)) \(status["alerts"]?.text ?? "")"
        )
        standing[name] = nil
      }
    }
    let messaging = status["messaging"]
    if let used = messaging?["airtime_used_ms"]?.integer, let most = messaging?["airtime_limit_ms"]?.integer,
      used > most
    {
      breaches.append("\(used) ms of air time in an hour, of \(most)")
    }
  }

  // MARK: Asking it

  /// Asks over the control socket, while the world stands still for everybody else. `nil`: it does not answer.
  func ask(_ method: String, _ target: String, _ body: String = "") -> HTTPResponse? {
    guard daemon != nil, isServing, !isDead, !machine.isStopped else { return nil }
    let client = HTTPClient(.unix(location: "\(folder)/ctl"), on: loop)
    defer { client.close() }
    var answer: HTTPResponse?
    var isOver = false
    _ = loop.begin {
      // `try?`: a gateway that ends answers nothing.
      answer = try? await client.send(HTTPRequest(method, target, body: Array(body.utf8)), timeout: .seconds(60))
      isOver = true
    }
    var turns = 0
    while !isOver, !isDead, turns < 100_000 {
      loop.turn(wait: false)
      turns += 1
    }
    return isDead ? nil : answer
  }

  /// As `ask`, for what takes the gateway some time: nobody waits for the answer.
  func request(_ method: String, _ target: String) {
    guard daemon != nil, isServing, !isDead, !machine.isStopped else { return }
    let client = HTTPClient(.unix(location: "\(folder)/ctl"), on: loop)
    _ = loop.begin { [weak self] in
      // `try?`: a gateway that ends answers nothing.
      let answer = try? await client.send(HTTPRequest(method, target), timeout: .seconds(90))
      self?.tell(
        "   \(answer.map { "\($0.status) \(String(decoding: $0.body.prefix(160), as: UTF8.self))" } ?? "no answer")")
      client.close()
    }
  }

  func json(_ target: String) -> JSONValue? {
    // `try?`: no answer has no content.
    ask("GET", target).flatMap { try? JSONValue(parsing: $0.body) }
  }

  func rows(_ target: String) -> [JSONValue] {
    // `try?`: each row is JSON.
    (ask("GET", target)?.body ?? []).split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) }
  }
}
