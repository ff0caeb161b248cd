// SPDX-License-Identifier: MIT

import Companion
import RadioSession

/// Stores the radio's data. Each call comes where the frame is decoded, in the radio's order: so storing does not depend on the task that asked, and
/// a cancelled task loses nothing.
protocol RadioDelegate: AnyObject {
  /// The handshake is done.
  func met(_ radio: RadioIdentity)
  /// The link is lost, or the radio has become another node.
  func lost()
  func connectionChanged()
  /// `wasAsked`: it answers a command of ours, else it is late, or another client's.
  func told(_ reply: Reply, wasAsked: Bool)
  /// A contact list begins, whoever asked for it. `total`: how many records the radio has, whatever it was asked for.
  func listBegan(_ total: UInt32, of question: RadioQuestion?)
  func listed(_ contact: Contact, of question: RadioQuestion?)
  func heard(_ push: Push, in frame: [UInt8])
}

/// Observes the frames on a link.
public protocol FrameTap: AnyObject {
  func passed(_ frame: [UInt8], _ direction: FrameDirection)
}

extension Command {
  /// The radio has another public key after it.
  var changesKey: Bool { if case .importPrivateKey = self { true } else { false } }
}
