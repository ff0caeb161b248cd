// SPDX-License-Identifier: MIT

/// The gateway, as servers reach it.
public protocol RelayHost: AnyObject {
  /// What is queued may be carried out: the radio's channels and nodes have been read once.
  var isReadyForCommands: Bool { get }
  /// Carries a command out that is allowed.
  func carryOut(_ command: RemoteCommand) async -> CommandAnswer
  /// Some were added, edited or deleted.
  func documentsChanged()
  /// A message that another gateway has heard. What is written for it is written in this turn.
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate
  /// Whether all that waited in the radio has been taken from it: before, nobody knows what it has heard itself. When this becomes true,
  /// `Relay.radioWasRead` tells the upstreams.
  var knowsWhatRadioHeard: Bool { get }
  /// Digests of channels that are exchanged with other gateways.
  var exchangedChannels: [String] { get }
  /// Whose messages of them alone are taken; none: everybody's.
  var takenGateways: [String] { get }
}

extension RelayHost {
  public var isReadyForCommands: Bool { true }
  public var knowsWhatRadioHeard: Bool { true }
}
