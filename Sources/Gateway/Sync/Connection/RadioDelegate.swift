// SPDX-License-Identifier: MIT

import Companion
import RadioSession

/// Stores the radio's data. Each call happens when the frame is decoded, in the radio's order: storing does not depend
/// on the task that asked, and a cancelled task loses nothing.
protocol RadioDelegate: AnyObject {
  /// The handshake is done.
  func met(_ radio: RadioIdentity)
  /// The link is lost, or the radio has become another node.
  func lost()
  func connectionChanged()
  /// `wasAsked`: the reply answers a command of ours; otherwise it is late, or belongs to another client.
  func told(_ reply: Reply, wasAsked: Bool)
  /// A contact list begins, whichever client asked for it. `total`: the number of all contacts in the radio, even if
  /// only changed ones follow.
  func listBegan(_ total: UInt32, of question: RadioQuestion?)
  func listed(_ contact: Contact, of question: RadioQuestion?)
  func heard(_ push: Push, in frame: [UInt8])
}

/// Observes the frames on a link.
public protocol FrameTap: AnyObject {
  func passed(_ frame: [UInt8], _ direction: FrameDirection)
}

extension Command {
  /// The command gives the radio another public key.
  var changesKey: Bool { if case .importPrivateKey = self { true } else { false } }
}
