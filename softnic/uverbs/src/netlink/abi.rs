//! Structures and constants of RDMA netlink, from `<linux/netlink.h>` and `<rdma/rdma_netlink.h>`.

use crate::abi::{numbers, structs};
use bytemuck::{Pod, Zeroable};

numbers! {
    /// Types of messages in every protocol. Types below `MIN` are control messages.
    message: u16 {
        ERROR = 2,
        DONE = 3,
        MIN = 16,
    }

    flag: u16 {
        REQUEST = 1,
        MULTI = 2,
        ACK = 4,
        DUMP = 0x300,
    }

    /// Commands to the RDMA netlink client for devices.
    command: u16 {
        GET = 1,
        SET = 2,
        NEWLINK = 3,
        DELLINK = 4,
        PORT_GET = 5,
        SYS_GET = 6,
        SYS_SET = 7,
        RES_GET = 9,
        RES_QP_GET = 10,
        RES_CM_ID_GET = 11,
        RES_CQ_GET = 12,
        RES_MR_GET = 13,
        RES_PD_GET = 14,
        GET_CHARDEV = 15,
        STAT_SET = 16,
        STAT_GET = 17,
        STAT_DEL = 18,
        RES_QP_GET_RAW = 19,
        RES_CQ_GET_RAW = 20,
        RES_MR_GET_RAW = 21,
        RES_CTX_GET = 22,
        RES_SRQ_GET = 23,
        STAT_GET_STATUS = 24,
    }

    /// Attributes in commands about devices and in their responses.
    attribute: u16 {
        DEV_INDEX = 1,
        DEV_NAME = 2,
        PORT_INDEX = 3,
        CAP_FLAGS = 4,
        FW_VERSION = 5,
        NODE_GUID = 6,
        SYS_IMAGE_GUID = 7,
        SUBNET_PREFIX = 8,
        LID = 9,
        SM_LID = 10,
        LMC = 11,
        PORT_STATE = 12,
        PORT_PHYS_STATE = 13,
        DEV_NODE_TYPE = 14,
        RES_SUMMARY = 15,
        RES_SUMMARY_ENTRY = 16,
        RES_SUMMARY_ENTRY_NAME = 17,
        RES_SUMMARY_ENTRY_CURR = 18,
        RES_QP = 19,
        RES_QP_ENTRY = 20,
        RES_LQPN = 21,
        RES_RQPN = 22,
        RES_RQ_PSN = 23,
        RES_SQ_PSN = 24,
        RES_PATH_MIG_STATE = 25,
        RES_TYPE = 26,
        RES_STATE = 27,
        RES_PID = 28,
        RES_CQ = 35,
        RES_CQ_ENTRY = 36,
        RES_CQE = 37,
        RES_USECNT = 38,
        RES_MR = 40,
        RES_MR_ENTRY = 41,
        RES_RKEY = 42,
        RES_LKEY = 43,
        RES_MRLEN = 45,
        RES_PD = 46,
        RES_PD_ENTRY = 47,
        NDEV_INDEX = 50,
        NDEV_NAME = 51,
        RES_PDN = 60,
        RES_CQN = 61,
        RES_MRN = 62,
        RES_CTXN = 64,
        NETNS_MODE = 66,
        DEV_PROTOCOL = 67,
        CHARDEV_TYPE = 69,
        CHARDEV_NAME = 70,
        CHARDEV_ABI = 71,
        CHARDEV = 72,
        UVERBS_DRIVER_ID = 73,
        STAT_MODE = 74,
        STAT_RES = 75,
        STAT_COUNTER = 77,
        STAT_HWCOUNTERS = 80,
        STAT_HWCOUNTER_ENTRY = 81,
        STAT_HWCOUNTER_ENTRY_NAME = 82,
        STAT_HWCOUNTER_ENTRY_VALUE = 83,
        DEV_DIM = 84,
        RES_CTX = 86,
        RES_CTX_ENTRY = 87,
        RES_SRQ = 88,
        RES_SRQ_ENTRY = 89,
        RES_SRQN = 90,
        COPY_ON_FORK = 93,
        STAT_HWCOUNTER_INDEX = 94,
    }
}

structs! {
    /// `nlmsghdr`, the header of each message.
    Header[16] {
        len: u32,
        kind: u16,
        flags: u16,
        sequence: u32,
        port: u32,
    }
}

/// RDMA netlink client of devices.
pub(super) const DEVICES: u16 = 5;

/// Returns the message type of a device command.
#[cfg(test)]
pub(super) const fn kind(command: u16) -> u16 {
    DEVICES << 10 | command
}
