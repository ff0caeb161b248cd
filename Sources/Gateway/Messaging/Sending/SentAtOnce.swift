// SPDX-License-Identifier: MIT

import Companion
import Delivery
import MeshCrypto
import RadioSession
import Store
import Sync

/// What is sent at once or refused, and is not kept: adverts, surveys, and datagrams, which are data of programs for programs.
extension Messenger {
  /// Sends a command that the radio answers with OK. Returns its air time in milliseconds, which counts unless the radio has not sent it.
  ///
  /// `channel`: the air time counts for this channel, too. `unsupported`: what to say of firmware that does not know the command.
  @discardableResult
  func sendAtOnce(
    _ command: Command, in scope: FloodScopeOverride? = nil, bytes: Int, channel: String? = nil,
    _ priority: DeliveryPriority = .interactive, for purpose: AirtimePurpose, unsupported: String? = nil
  ) async throws(Refusal) -> Int64 {
    guard synchronizer.connection.state == .up else { throw .linkDown }
    let airtime = airtime(of: bytes) ?? 0
    guard spend(airtime, priority, for: purpose, channel: channel) else {
      let place = channel == nil ? "" : " or on this channel"
      throw .full("the hour's air time for \(priority.name) traffic\(place) is used up; try later")
    }
    guard let asked = submit(command, in: scope) else {
      giveBack(airtime, for: purpose, channel: channel)
      throw .linkDown
    }
    let question = asked[asked.count / 2]
    let outcome = await question.outcome()
    switch outcome {
    case .failed(.refused), .failed(.notSent): giveBack(airtime, for: purpose, channel: channel)
    case .failed(.linkLost) where question.answer?.wasSent == false:
      giveBack(airtime, for: purpose, channel: channel)
      throw .linkDown
    default: break
    }
    await untilScopeIsBack(asked)
    switch outcome {
    case .replied(.ok): return airtime
    case .failed(.refused(let error)):
      if error == .unsupported, let unsupported { throw .radio(unsupported) }
      throw .radio("the radio refuses: \(error.map(\.description) ?? "no reason given")")
    case .failed(.notSent) where synchronizer.connection.isScopeStuck: throw .radio(RadioConnection.stuckScope)
    case .failed(.notSent(isRefused: true)): throw .radio("the radio refuses the region; nothing was sent")
    case .failed(.notSent): throw .silence("the radio does not answer; nothing was sent")
    case .failed(.timedOut): throw .silence("the radio does not answer; it may have sent it anyway")
    case .failed(.linkLost): throw .silence("the radio's link was lost; it may have sent it anyway")
    default: throw .unexpectedAnswer
    }
  }

  /// Sends a datagram to a channel: in this region or, without one, in the channel's. Nobody acknowledges it.
  public func send(
    _ data: [UInt8], type: UInt16, to channel: Channel, in region: RegionChoice?
  ) async throws(Refusal) -> (region: RegionChoice, airtime: Int64) {
    guard (1...OutgoingDatagram.mostBytes).contains(data.count) else {
      throw .invalid("a datagram must have 1 to \(OutgoingDatagram.mostBytes) bytes, not \(data.count)")
    }
    guard synchronizer.connection.state == .up, synchronizer.isReported(channel.slot) else { throw .linkDown }
    let unsupported = "the radio's firmware cannot send datagrams: that needs 1.15"
    let version = synchronizer.connection.identity?.device?.protocolVersion ?? 0
    guard version >= OutgoingDatagram.firstVersion else { throw .radio(unsupported) }
    let digest = channel.secret.digest
    let own = try Refusal.translating { () throws(StoreError) in try store.region(ofChannel: digest) }
    let ofChannel = own.flatMap { Region($0) }.map { RegionChoice.region($0) }
    let choice = region ?? ofChannel ?? .radioDefault
    let scope = try scope(for: choice)
    let datagram = OutgoingDatagram(slot: channel.slot, dataType: type, data: data)
    let bytes = PacketLength.channelData(data.count) + regionBytes(in: scope)
    let airtime = try await sendAtOnce(
      .sendChannelData(datagram), in: scope, bytes: bytes, channel: digest, for: .message, unsupported: unsupported)
    return (choice, airtime)
  }
}
