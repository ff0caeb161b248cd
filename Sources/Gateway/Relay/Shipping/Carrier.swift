// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Sockets
import Store
import UntrustedText

/// Transfers batches to one kind of server. `Upstream` decides what to send and when, and handles the answers.
///
/// `Upstream` calls `greet` only when nothing else is under way. Up to `window` calls of `carry` may run at once, and are answered in order. A
/// refused batch voids the later batches of its lane; any other answer except an acknowledgement voids all batches. `Upstream` cancels the tasks of
/// void batches.
protocol Carrier: AnyObject {
  /// The word in the configuration: `hub`, `webhook`, `mqtt`.
  var kind: String { get }
  /// The server's address, for people.
  var place: String { get }
  var window: Int { get }
  /// The server may acknowledge only the beginning of a batch: the later batches of its lane are void then, and are sent again.
  var mayTakeInPart: Bool { get }
  /// The carrier keeps its connection while there is nothing to send, and opens it again when it is lost.
  var keepsConnection: Bool { get }
  /// The server counts the events that it has, and reports it in its greeting (`Greeting.has`): the cursor may reach the disk later.
  var serverKeepsCount: Bool { get }
  /// The server recognises a batch by what it contains: one whose answer is lost is sent again as it was.
  var namesBatches: Bool { get }
  /// The server's updates for gateways; `nil`: it has none.
  var updatesSource: (any UpdatesSource)? { get }
  /// The radio, for a carrier that reports on it or lets it sign.
  var radio: (any RadioAccess)? { get set }
  /// A greeting fails until a radio has been connected.
  var needsRadio: Bool { get }
  /// The connection is about a radio that was replaced or changed since.
  var isOfFormerRadio: Bool { get }
  /// The kind of the connection, for people: `live` or `http`; `nil`: there is only one kind.
  var link: String? { get }
  /// A problem that does not hold up events; `nil`: none.
  var minorTrouble: String? { get }
  /// Receives the server's commands.
  var commands: CommandIntake? { get set }
  /// The other end's kernel has received all sent bytes. False also if this is unknown.
  var hasArrived: Bool { get }
  /// Bytes handed to the network so far.
  var bytesSent: UInt64 { get }
  /// Bytes of all traffic on the line, in both directions.
  var lineBytes: UInt64 { get }
  /// Calls once, after about so many more bytes on the line.
  func alarm(after bytes: Int64, _ call: @escaping () -> Void)
  /// The expiry of the server's certificate, seconds since 1970; `nil`: it has shown none.
  var certificateExpiry: Int64? { get }
  /// Checks that the server answers, and asks which events it has.
  func greet() async -> Greeting
  /// Asks which events of an earlier epoch the server has, and for their digests: in each lane up to the given event. A lane without one is left out.
  /// Only servers that keep count are asked.
  func standing(of epoch: String, through seqs: ByLane<Int64?>) async -> Greeting
  /// From the last greeting: the other epochs that the server has of this gateway.
  var otherEpochs: [OtherEpoch] { get }
  /// After a greeting: receives from the server until the connection is lost or outdated. A carrier that keeps no connection waits for ever.
  func hold() async throws(CancellationError) -> ConnectionEnd
  func carry(_ batch: Batch) async -> Verdict
  /// The event up to which the server has acknowledged a batch that has no answer yet; `nil`: none, or unknown.
  func taken(of batch: Batch) -> Int64?
  /// Keeps the newest state under its name, for a server that shows it.
  func setState(_ name: String, _ body: [UInt8])
  /// The network has changed: checks that a kept connection still works.
  func probe()
  /// From now on the gateway's other upstreams take commands on these topics of brokers, and this one publishes nothing there.
  func keepApart(from topics: [TopicTemplate])
  /// The carrier that replaces this one; `nil`: none.
  func replacement() -> (any Carrier)?
  /// Tests the server without an event of the journal.
  func test() async -> Verdict
  func close()
}

/// Why a kept connection has ended.
enum ConnectionEnd: Equatable {
  /// `nil`: the failed batches report the reason.
  case lost(Verdict?)
  /// The connection works, but is to be replaced once nothing is under way.
  case outdated
}

extension Carrier {
  var keepsConnection: Bool { false }
  var namesBatches: Bool { false }
  var updatesSource: (any UpdatesSource)? { nil }
  var needsRadio: Bool { false }
  var isOfFormerRadio: Bool { false }
  var link: String? { nil }
  var minorTrouble: String? { nil }
  var otherEpochs: [OtherEpoch] { [] }
  func setState(_ name: String, _ body: [UInt8]) {}
  func probe() {}
  func keepApart(from topics: [TopicTemplate]) {}
  func taken(of batch: Batch) -> Int64? { nil }
  func replacement() -> (any Carrier)? { nil }
  var hasArrived: Bool { false }
  var lineBytes: UInt64 { bytesSent }
  func alarm(after bytes: Int64, _ call: @escaping () -> Void) {}
  var certificateExpiry: Int64? { nil }
  var window: Int { 1 }
  var mayTakeInPart: Bool { false }
  var commands: CommandIntake? {
    get { nil }
    // These servers send no commands.
    set {}
  }
  var radio: (any RadioAccess)? {
    get { nil }
    // These carriers do not use the radio.
    set {}
  }

  func standing(of epoch: String, through seqs: ByLane<Int64?>) async -> Greeting { .ready }

  func hold() async throws(CancellationError) -> ConnectionEnd {
    try await Waiter().wait()
    throw CancellationError()
  }

  /// A greeting is a sufficient test of a server that answers it.
  func test() async -> Verdict {
    switch await greet() {
    case .has, .ready: .acknowledged(through: 0)
    case .failed(let verdict): verdict
    }
  }
}

/// A carrier that counts its traffic with the kernel's figures.
protocol MeteredCarrier: Carrier {
  var meter: TrafficMeter { get }
}

extension MeteredCarrier {
  var lineBytes: UInt64 { meter.bytes }
  func alarm(after bytes: Int64, _ call: @escaping () -> Void) { meter.alarm(after: bytes, call) }
}

/// An epoch of this gateway at a server, and its last event there.
struct OtherEpoch: Equatable {
  var epoch: String
  var last: Int64

  private static let most = 16

  /// `others` of a hub's greeting, without invalid ones.
  static func all(_ greeting: JSONValue) -> [OtherEpoch] {
    (greeting["others"]?.fields ?? []).prefix(most).compactMap { epoch, last in
      guard RelayMark.isGateway(epoch), let last = last.count else { return nil }
      return OtherEpoch(epoch: epoch, last: last)
    }
  }
}

/// A server's answer about this journal.
enum Greeting: Equatable {
  /// The server reports the events that it has and, if it can, the digest of each lane's newest one (`EventContent`).
  case has(Acknowledged, ByLane<String?> = ByLane(all: nil))
  /// The server does not keep count, or cannot be asked: our cursor is right.
  case ready
  case failed(Verdict)
}

/// The last events of this epoch at a server that keeps count; `nil`: it has never had any.
enum Acknowledged: Equatable {
  /// The server has everything up to here, and takes events in order.
  case whole(Int64?)
  /// The server knows lanes.
  case byLane(ByLane<Int64?>)
}
