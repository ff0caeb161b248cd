// SPDX-License-Identifier: MIT

import Companion
import RadioSession

/// Keeps what the radio says. Each call comes where the frame is decoded, in the radio's order: what is kept there does not depend on
/// whoever asked for it, and is lost to no cancelled task.
protocol RadioDelegate: AnyObject {
  /// The handshake is done.
  func met(_ radio: RadioIdentity)
  /// The link is gone, or the radio has become another node.
  func lost()
  func connectionChanged()
  /// `wasAsked`: it answers a command of ours, else it is late, or another client's.
  func told(_ reply: Reply, wasAsked: Bool)
  /// A record of a contact list, whoever asked for that.
  func listed(_ contact: Contact)
  func heard(_ push: Push, in frame: [UInt8])
}

/// What became of a command.
public struct RadioAnswer: Sendable {
  public let outcome: RadioSession.Outcome
  /// The frame that said so; empty where the radio said nothing.
  public let frame: [UInt8]

  /// Of a command that was not taken.
  public static let linkLost = RadioAnswer(outcome: .failed(.linkLost), frame: [])
}

/// What comes of a contact list before its end.
public enum ContactListPart {
  /// How many records the radio has, whatever it was asked for.
  case began(total: UInt32)
  case record(Contact)
}

extension Command {
  /// The radio has another public key after it.
  var changesKey: Bool { if case .importPrivateKey = self { true } else { false } }
}
