// SPDX-License-Identifier: MIT

/// The gateway's side of the servers' requests.
public protocol RelayHost: AnyObject {
  /// Queued commands may be carried out: the radio's channels and nodes have been read once.
  var isReadyForCommands: Bool { get }
  /// Carries out an allowed command.
  func carryOut(_ command: RemoteCommand) async -> CommandAnswer
  /// Documents were added, edited or deleted.
  func documentsChanged()
  /// Takes a message that another gateway has heard. Everything that it writes is written in this turn.
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate
  /// Whether all messages that waited in the radio were read: before that, the gateway does not know which messages it has heard itself. When this
  /// becomes true, `Relay.radioWasRead` tells the upstreams.
  var knowsWhatRadioHeard: Bool { get }
  /// Digests of the channels whose messages this gateway exchanges with others.
  var exchangedChannels: [String] { get }
  /// The gateways whose messages are taken; empty: all.
  var takenGateways: [String] { get }
}

extension RelayHost {
  public var isReadyForCommands: Bool { true }
  public var knowsWhatRadioHeard: Bool { true }
}
