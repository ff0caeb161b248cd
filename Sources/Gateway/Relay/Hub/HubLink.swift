// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import Timing
import UntrustedText

/// State that outlives a live link.
struct LinkMemory {
  /// Numbers of batches and questions.
  var lastNumber = 0
  /// The silences that the path is known to allow.
  var silences: KeepAlive
  var unasked = UnaskedTraffic()
  /// Bytes that closed links have sent.
  var bytesSent: UInt64 = 0
}

/// An open live link: sends batches, questions and answers, and receives until it is lost.
final class HubLink {
  /// The hub's announcement of a new update.
  typealias Announcement = (_ bucket: String, _ seq: Int64) -> Void

  /// The time limit for an answer to a hello, a question or a ping, counted from the last progress.
  static let patience: Duration = .seconds(15)
  /// The limit for requests of the hub whose answers it has not read.
  private static let maxOwed = 64

  let socket: WebSocket
  /// Batches that may be in flight.
  let window: Int
  /// As in `Carrier`, from the welcome.
  var otherEpochs: [OtherEpoch] = []
  private var memory: LinkMemory
  private let requests: HubRequests
  private let loop: EventLoop
  private let log: Log
  private let place: String
  private var batches = BatchesInFlight()
  private var verdicts: [Int: Promise<Verdict>] = [:]
  private var questions: [String: Promise<JSONValue?>] = [:]
  private var pulse: LinkPulse
  /// Resumed when a ping was answered, or is due now.
  private let stirred = Waiter()
  /// The ends of answers that may not have reached the kernel, as values of `bytesSent`.
  private var answerEnds: [UInt64] = []

  init(
    _ socket: WebSocket, window: Int, memory: LinkMemory, requests: HubRequests, place: String, on loop: EventLoop,
    log: Log
  ) {
    (self.socket, self.window, self.memory, self.requests) = (socket, window, memory, requests)
    (self.place, self.loop, self.log) = (place, loop, log)
    pulse = LinkPulse(memory.silences, now: loop.now)
  }

  /// Receives until the link is lost.
  func run(_ announce: @escaping Announcement) async throws {
    try await loop.race({ try await self.receive(announce) }, { try await self.keepAlive() })
  }

  private func receive(_ announce: Announcement) async throws {
    while true {
      let event = try await socket.next()
      if pulse.heard(now: loop.now) { stirred.resume() }
      switch event {
      case .message(let bytes):
        if try !take(Self.message(bytes), announce) { try await slowDown(bytes.count) }
      case .ping(let bytes): try await slowDown(bytes)
      case .pong: break
      }
      try await untilRoom()
    }
  }

  private func slowDown(_ bytes: Int) async throws(CancellationError) {
    guard let pause = memory.unasked.pause(after: bytes, now: loop.now) else { return }
    if pause.isTold {
      log.warning(
        "\(place): the hub sends more than 8 KiB of unrequested data a second: the gateway reads no faster (logged at most once an hour)"
      )
    }
    try await loop.sleep(for: pause.duration)
  }

  /// After a silence sends a ping, and ends the link if no answer comes.
  private func keepAlive() async throws {
    while true {
      while loop.now < pulse.due { try await stirred.wait(until: pulse.due, on: loop) }
      pulse.pinged(now: loop.now)
      socket.ping()
      do {
        try await loop.whileMoving(Self.patience, { self.socket.movedBytes }) {
          while self.pulse.isPinged { try await self.stirred.wait() }
        }
      } catch is TimedOut {
        if let words = pulse.unanswered(now: loop.now) { log.info("\(place): \(words)") }
        throw WebSocketFailure.closed("no answer to a ping")
      }
    }
  }

  /// The network has changed: the link must prove that it works.
  func probe() {
    pulse.probe()
    stirred.resume()
  }

  /// Returns whether this gateway has asked for the message.
  func take(_ message: JSONValue, _ announce: Announcement) throws(WebSocketFailure) -> Bool {
    // A number alone acknowledges the whole batch.
    if let number = message.count { return try answered(number) { .acknowledged(through: $0) } }
    let type = message["type"]?.string ?? ""
    switch type {
    case "taken", "refused", "busy", "out_of_order", "conflict":
      return try answered(message["n"]?.count) { _ in Self.verdict(type, message) }
    case "response":
      guard let id = message["id"]?.string, let question = questions.removeValue(forKey: id) else { return false }
      question.keep(message["ok"]?.bool == true ? message["result"] ?? .null : nil)
      return true
    case "request": requests.requested(message, over: self)
    case "has_new":
      if let bucket = message["bucket"]?.string, let seq = message["seq"]?.integer,
        (1...CatchUp.maxSeq).contains(seq)
      {
        announce(bucket, seq)
      }
    default: break  // from a newer hub
    }
    return false
  }

  static func message(_ bytes: [UInt8]) throws(WebSocketFailure) -> JSONValue {
    // `try?`: a message that is not JSON ends the link, whatever is wrong with it.
    guard let message = try? JSONValue(parsing: bytes), message["type"]?.string != nil || message.count != nil else {
      throw .closed("the hub sent an invalid message")
    }
    return message
  }

  // MARK: Batches

  func carry(_ batch: Batch, within limit: Duration, _ encode: (_ number: Int) -> [UInt8]) async -> Verdict {
    let (number, answer) = (nextNumber(), Promise<Verdict>())
    batches.sent(number, lane: batch.lane, last: batch.events.last?.seq ?? 0)
    verdicts[number] = answer
    defer { verdicts[number] = nil }
    socket.send(text: encode(number))
    do {
      // The limit counts from the last progress: the batch's bytes arrive, or the hub acknowledges earlier batches.
      // Other traffic is no progress.
      let end = socket.bytesSent
      let moved = { [socket] in min(end, socket.acknowledgedBytes) &+ self.batches.taken << 32 }
      return try await loop.whileMoving(limit, moved) { try await answer.value() }
    } catch is TimedOut {
      socket.close(.closed("no answer in time"))
      return .hungUp(reason: "no answer in time")
    } catch {
      return .retry(reason: "void", after: nil)
    }
  }

  /// Returns false if no batch has this number.
  private func answered(_ number: Int64?, _ verdict: (_ last: Int64) -> Verdict?) throws(WebSocketFailure) -> Bool {
    guard let first = batches.first, number == Int64(first.number) else { return false }
    guard let verdict = verdict(first.last) else { throw .closed("an invalid answer") }
    batches.answered(verdict)
    verdicts[first.number]?.keep(verdict)
    return true
  }

  /// The verdict on a batch; `nil`: the answer is invalid.
  private static func verdict(_ type: String, _ message: JSONValue) -> Verdict? {
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

  private func nextNumber() -> Int {
    memory.lastNumber += 1
    return memory.lastNumber
  }

  // MARK: Questions and states

  /// Progress: the hub has received all bytes sent until now, or sends more than pings.
  static func moved(on socket: WebSocket) -> () -> UInt64 {
    let end = socket.bytesSent
    return { min(end, socket.acknowledgedBytes) &+ socket.dataReceived }
  }

  func ask(_ question: UpdatesQuestion) async -> JSONValue? {
    let (id, answer) = (String(nextNumber()), Promise<JSONValue?>())
    questions[id] = answer
    defer { questions[id] = nil }
    socket.send(
      text: JSONWriter.object { json in
        json.field("type", "request")
        json.field("id", id)
        json.field("method", question.method)
        json.objectField("params") { question.write(to: &$0) }
      })
    // `try?`: no answer in time, or the caller was cancelled.
    return (try? await loop.whileMoving(Self.patience, Self.moved(on: socket)) { try await answer.value() }) ?? nil
  }

  func publish(_ state: (name: String, body: [UInt8])) {
    socket.send(
      text: JSONWriter.object { json in
        json.field("type", "state")
        json.field("name", state.name)
        json.field("body", json: state.body)
      })
  }

  // MARK: Answers to the hub's requests

  func respond(_ response: [UInt8]) {
    socket.send(text: response)
    answerEnds.append(socket.bytesSent)
  }

  /// Stops reading while the hub does not read its answers: they would fill the memory.
  private func untilRoom() async throws(CancellationError) {
    while requests.underWay + answersWaiting() > Self.maxOwed {
      guard answersWaiting() > 0 else {
        try await requests.ended.wait()
        continue
      }
      // The next read throws the reason of the end.
      do { try await socket.drained() } catch { return }
    }
  }

  private func answersWaiting() -> Int {
    let gone = socket.bytesSent - min(socket.bytesSent, UInt64(socket.pendingBytes))
    answerEnds.removeFirst(answerEnds.firstIndex { $0 > gone } ?? answerEnds.count)
    return answerEnds.count
  }

  // MARK: The end

  /// Closes the link, and returns the state that outlives it. `reason`: the verdict on the first batch.
  func close(_ reason: String? = nil) -> LinkMemory {
    if let reason, let first = batches.first { verdicts[first.number]?.keep(.hungUp(reason: reason)) }
    memory.silences = pulse.silences
    memory.bytesSent &+= socket.bytesSent
    socket.close()
    let unanswered = questions
    questions = [:]
    for question in unanswered.values { question.keep(nil) }
    return memory
  }

  var hasBatches: Bool { batches.first != nil }
  /// The hub has taken a batch over this link.
  var hasAnswers: Bool { batches.taken > 0 }
}
