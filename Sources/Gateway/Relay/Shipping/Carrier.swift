// SPDX-License-Identifier: MIT

import EventLoop
import Sockets
import Store

/// How batches get to one kind of server. What is sent, when, and what becomes of it, is `Upstream`'s.
///
/// One thing at a time: the next `greet` comes when everything else was answered, and up to `window` calls of `carry` may be
/// under way, which are answered in order. A batch that is refused makes those of its lane behind it void, and anything else but an acknowledgement
/// all: their tasks are cancelled.
protocol Carrier: AnyObject {
  /// The word of the configuration: `hub`, `webhook`, `mqtt`.
  var kind: String { get }
  /// Where it goes, for people.
  var place: String { get }
  var window: Int { get }
  /// Of a batch its beginning may be acknowledged: what was sent behind it in its lane comes again then, and is void.
  var mayTakeInPart: Bool { get }
  /// The connection is kept while there is nothing to send, and opened again when it is lost.
  var keepsConnection: Bool { get }
  /// The server counts what it has, and says so when it is greeted (`Greeting.has`): its cursor need not be on disk at once.
  var serverKeepsCount: Bool { get }
  /// What the server has for gateways beside acknowledgements; `nil`: nothing.
  var updatesSource: (any UpdatesSource)? { get }
  /// The radio, for a carrier that tells of it or has it sign.
  var radio: (any RadioAccess)? { get set }
  /// A greeting fails until a radio was connected.
  var needsRadio: Bool { get }
  /// How it is connected, for people: `live` or `http`; `nil`: there is one way.
  var link: String? { get }
  /// What is wrong beside the events, which are delivered; `nil`: nothing.
  var minorTrouble: String? { get }
  /// Who takes in what the server asks for.
  var commands: (any CommandTaker)? { get set }
  /// The other end's kernel has all that was sent. False also where nobody can tell.
  var hasArrived: Bool { get }
  /// Bytes handed to the network so far.
  var bytesSent: UInt64 { get }
  /// What the line was used for, both ways, with everything that goes over it.
  var lineBytes: UInt64 { get }
  /// Calls once, when about so many bytes more have gone over the line.
  func alarm(after bytes: Int64, _ call: @escaping () -> Void)
  /// Until when the server's certificate is good, seconds since 1970; `nil`: it has shown none.
  var certificateExpiry: Int64? { get }
  /// Makes sure that the server is there, and asks what it has.
  func greet() async -> Greeting
  /// What the server has of an earlier epoch, of each lane up to an event that it may have, and what that says. Of a lane without one it
  /// is not asked. A server that keeps no count is not asked at all.
  func standing(of epoch: String, through seqs: ByLane<Int64?>) async -> Greeting
  /// After a greeting: takes what comes, until the connection is lost or should be made anew. Where nothing is kept, it waits for ever.
  func hold() async throws(CancellationError) -> ConnectionEnd
  func carry(_ batch: Batch) async -> Verdict
  /// The newest state of its name, for a server that shows it.
  func setState(_ name: String, _ body: [UInt8])
  /// The network has changed: a kept connection has to show that it still works.
  func probe()
  /// The carrier that is to take the place of this one; `nil`: none.
  func replacement() -> (any Carrier)?
  /// Sends a test that is not an event.
  func test() async -> Verdict
  func close()
}

/// Why a kept connection is not there any more.
enum ConnectionEnd: Equatable {
  /// `nil`: the failed batches have reported it.
  case lost(Verdict?)
  /// Nothing is wrong, but it should be made anew, when nothing is under way.
  case outdated
}

/// Takes in what a server asks for.
protocol CommandTaker: AnyObject {
  /// The answer as JSON, when all of it is on disk; empty: there is none; `nil`: it is not on disk, and must be asked again.
  func take(_ request: [UInt8]) async -> [UInt8]?
  /// Whether one more answer may go to a broker, whose other clients may ask for any number: twice as many a minute as commands may come.
  /// `least`: so many in any case.
  func mayAnswer(atLeast least: Int) -> Bool
}

extension Carrier {
  var keepsConnection: Bool { false }
  var updatesSource: (any UpdatesSource)? { nil }
  var needsRadio: Bool { false }
  var link: String? { nil }
  var minorTrouble: String? { nil }
  func setState(_ name: String, _ body: [UInt8]) {}
  func probe() {}
  func replacement() -> (any Carrier)? { nil }
  var hasArrived: Bool { false }
  var lineBytes: UInt64 { bytesSent }
  func alarm(after bytes: Int64, _ call: @escaping () -> Void) {}
  var certificateExpiry: Int64? { nil }
  var window: Int { 1 }
  var mayTakeInPart: Bool { false }
  var commands: (any CommandTaker)? {
    get { nil }
    // Nothing comes this way.
    set {}
  }
  var radio: (any RadioAccess)? {
    get { nil }
    // It says nothing of a radio.
    set {}
  }

  func standing(of epoch: String, through seqs: ByLane<Int64?>) async -> Greeting { .ready }

  func hold() async throws(CancellationError) -> ConnectionEnd {
    try await Waiter().wait()
    throw CancellationError()
  }

  /// Greeting a server says enough where it answers.
  func test() async -> Verdict {
    switch await greet() {
    case .has, .ready: .acknowledged(through: 0)
    case .failed(let verdict): verdict
    }
  }
}

/// A carrier whose connections the kernel counts.
protocol MeteredCarrier: Carrier {
  var meter: TrafficMeter { get }
}

extension MeteredCarrier {
  var lineBytes: UInt64 { meter.bytes }
  func alarm(after bytes: Int64, _ call: @escaping () -> Void) { meter.alarm(after: bytes, call) }
}

/// What a server knows of this journal.
enum Greeting: Equatable {
  /// The server says what it has, and what the newest of that says (`EventContent`), where it tells.
  case has(Acknowledged, ByLane<String?> = ByLane(all: nil))
  /// It does not keep count, or not in a way that can be asked for: our cursor is right.
  case ready
  case failed(Verdict)
}

/// How far a server that keeps count has the events of this epoch; `nil`: it has never had any.
enum Acknowledged: Equatable {
  /// The server has everything up to here, and takes events in order.
  case whole(Int64?)
  /// The server knows lanes.
  case byLane(ByLane<Int64?>)
}
