// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Store
import UntrustedText

/// What the gateway asks the hub, and tells it of itself; what the hub answers and asks.
extension HubConnection {
  /// How a link begins. Source: docs/hub-protocol.md.
  func hello() -> [UInt8] {
    JSONWriter.object { json in
      json.field("type", "hello")
      json.field("protocol", 2)
      json.field("gateway", store.gatewayID)
      json.field("epoch", store.epoch)
      json.field("version", settings.version)
      json.field("keep_alive_s", settings.keepAlive)
      json.field("brief", true)
      json.field("conflicts", true)
    }
  }

  /// Rare, and asked by HTTP, whatever carries the events.
  func standing(of epoch: String, through seqs: ByLane<Int64?>) async -> Greeting {
    await http.standing(of: epoch, through: seqs)
  }

  /// An answer to a batch; `nil` when it makes no sense.
  static func verdict(_ type: String, _ message: JSONValue) -> Verdict? {
    let words = message["error"]?.string.map(Visible.excerpt) ?? type
    switch type {
    case "taken": return message["acknowledged"]?.count.map { .acknowledged(through: $0) }
    case "refused": return .refused(status: Int(message["status"]?.integer ?? 422), reason: words)
    case "busy":
      let seconds = min(max(message["retry_after_s"]?.integer ?? 1, 0), RetryPolicy.longestRetryAfter)
      return .busy(reason: words, after: .seconds(seconds))
    case "conflict": return .diverged(reason: "it has another event \(message["seq"]?.count ?? 0)")
    default: return .retry(reason: "the hub is missing earlier events", after: nil)
    }
  }

  // MARK: Questions

  /// What was said until now gets there, or something comes that is more than a ping.
  static func moved(on socket: WebSocket) -> () -> UInt64 {
    let end = socket.bytesSent
    return { min(end, socket.acknowledgedBytes) &+ socket.dataReceived }
  }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    switch way {
    case .none: return nil
    case .http:
      defer { if http.isPutBack { stirred.resume() } }
      return try await http.ask(question)
    case .live(let socket):
      lastNumber += 1
      let (id, answer) = (String(lastNumber), Promise<JSONValue?>())
      asked[id] = answer
      defer { asked[id] = nil }
      socket.send(
        text: JSONWriter.object { json in
          json.field("type", "request")
          json.field("id", id)
          json.field("method", question.method)
          json.objectField("params") { question.write(to: &$0) }
        })
      // `try?`: no answer in time, or nobody waits for it any more.
      return (try? await loop.whileMoving(Self.patience, Self.moved(on: socket)) { try await answer.value() }) ?? nil
    }
  }

  // MARK: States

  /// The newest of its name is told now, or when the hub is there again.
  func setState(_ name: String, _ body: [UInt8]) {
    states.removeAll { $0.name == name }
    states.append((name, body))
    if states.count > Self.maxStates { states.removeFirst() }
    publishStates()
  }

  func publishStates() {
    let newest = states
    switch way {
    case .live(let socket):
      for state in newest {
        socket.send(
          text: JSONWriter.object { json in
            json.field("type", "state")
            json.field("name", state.name)
            json.field("body", json: state.body)
          })
      }
    case .http: loop.begin { [http] in for state in newest { await http.publish(state) } }
    case .none: return
    }
    states = []
  }

  // MARK: The hub's requests

  /// Bytes of a request's id. Answers begin with it.
  private static let maxID = 64
  /// Requests that the hub may have without having taken the answers.
  private static let maxOwed = 64

  /// Reads no further while the hub takes no answers: they would fill the memory.
  func untilRoom(on socket: WebSocket) async throws(CancellationError) {
    while carriedOut + answersWaiting(on: socket) > Self.maxOwed {
      guard answersWaiting(on: socket) > 0 else {
        try await answered.wait()
        continue
      }
      // Why it has ended is told to the next reader.
      do { try await socket.drained() } catch { return }
    }
  }

  private func answersWaiting(on socket: WebSocket) -> Int {
    let gone = socket.bytesSent - min(socket.bytesSent, UInt64(socket.pendingBytes))
    answerEnds.removeFirst(answerEnds.firstIndex { $0 > gone } ?? answerEnds.count)
    return answerEnds.count
  }

  func requested(_ message: JSONValue, _ socket: WebSocket) {
    guard let id = message["id"]?.string, id.utf8.count <= Self.maxID else { return }
    // A hub that asks without end is not answered without end: what it asks costs the line, whatever the answer.
    guard commands?.mayAnswer(atLeast: 60) ?? true else { return }
    guard message["method"]?.string == "command" else {
      return respond(id, [], code: "unknown_method", socket)
    }
    var request = JSONWriter()
    request.value(message["params"] ?? .null)
    // It is carried out to its end, whatever becomes of the link; the answer goes where the request came from.
    carriedOut += 1
    loop.begin { [weak self, weak socket] in
      defer {
        self?.carriedOut -= 1
        self?.answered.resume()
      }
      let answer = await self?.commands?.take(request.bytes)
      if let self, let socket { self.respond(id, answer ?? [], code: answer == nil ? "store" : "invalid", socket) }
    }
  }

  /// `answer`: an object with `ok`; empty: the request failed with `code`.
  private func respond(_ id: String, _ answer: [UInt8], code: String, _ socket: WebSocket) {
    // `try?`: our own words.
    let fields = (try? JSONValue(parsing: answer))?.fields ?? [("ok", .bool(false)), ("code", .string(code))]
    var json = JSONWriter()
    json.value(.object([("type", .string("response")), ("id", .string(id))] + fields.filter { $0.0 != "id" }))
    socket.send(text: json.bytes)
    if case .live(let current) = way, current === socket { answerEnds.append(socket.bytesSent) }
  }
}
